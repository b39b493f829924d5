"""A user's own data: `package.module:dataset`, a callable that returns train and test."""

from __future__ import annotations

from cutlayer.data.dataset import Dataset
from cutlayer.errors import DataError
from cutlayer.imports import import_by_name


def load_user_dataset(spec: str) -> tuple[Dataset, Dataset]:
    """Call what the spec names and check what it returns.

    An exception of the function is left as it is: its traceback is what the user needs.
    """
    function = import_by_name(spec, DataError)
    if not callable(function):
        raise DataError(f"{spec}: is a {type(function).__name__}, not a function that returns train and test")
    result = function()
    if not (
        isinstance(result, tuple | list)
        and len(result) == 2
        and all(isinstance(part, Dataset) for part in result)
    ):
        raise DataError(
            f"{spec}: must return (train, test), two cutlayer.data.Dataset; "
            f"it returned {type(result).__name__}"
        )
    train, test = result
    if train.shape != test.shape or train.classes != test.classes:
        raise DataError(
            f"{spec}: train has samples {list(train.shape)} of {train.classes} classes, "
            f"test {list(test.shape)} of {test.classes}; they must agree"
        )
    return train, test
