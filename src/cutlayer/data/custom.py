"""A user's own data: `package.module:dataset`, a callable that returns train and test."""

from __future__ import annotations

import importlib
import re

from cutlayer.data.dataset import Dataset
from cutlayer.errors import DataError

_SPEC = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def is_custom(spec: str) -> bool:
    """Tell whether a text has the form `package.module:name`."""
    return _SPEC.fullmatch(spec) is not None


def load_custom(spec: str) -> tuple[Dataset, Dataset]:
    """Call what the spec names and check what it returns.

    An exception inside the user's code is left as it is: its traceback is what the user needs.
    """
    module_name, _, name = spec.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # Only when the module itself is missing; a missing import inside it is the user's to see.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise DataError(
            f"{spec}: there is no module {error.name!r}; install it or add its folder to PYTHONPATH"
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise DataError(f"{spec}: {module_name} has no callable {name!r}")
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
