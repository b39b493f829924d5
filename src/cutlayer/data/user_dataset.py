"""A user's own data: objects in Python, or `package.module:dataset`, which returns train and test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from cutlayer.data.arrays import ArrayDataset
from cutlayer.data.dataset import Dataset
from cutlayer.data.form import DataSource
from cutlayer.data.indexed import Collate, IndexedDataset
from cutlayer.errors import DataError
from cutlayer.imports import import_by_name


def as_dataset(
    data: Any,
    *,
    collate: Collate | None = None,
    classes: int | None = None,
    tokens: int | None = None,
    class_names: Sequence[str] | None = None,
    name: str = "custom",
) -> DataSource:
    """Whatever a user has as a split: a torch Dataset, a sequence of (inputs, target), or (inputs, targets).

    Integer targets need `classes`, how many values they have. If it is not given, all targets are looked at:
    with many samples that are read from files, that takes time. `tokens` is the same for integer inputs.
    A pair of tensors, `(inputs, targets)`, is taken as a whole split, not as two samples.

        as_dataset((torch.rand(100, 8), torch.rand(100)))
        as_dataset(my_torch_dataset, classes=10)
    """
    if isinstance(data, (Dataset, ArrayDataset, IndexedDataset)) or _is_source(data):
        found: DataSource = data
        return found
    names = None if class_names is None else tuple(class_names)
    whole = _tensors(data)
    if whole is not None and collate is None:
        inputs, targets = whole
        if not targets.is_floating_point() and targets.dtype != torch.bool:
            targets = targets.to(torch.int64)
        elif targets.dtype == torch.float64:
            targets = targets.to(torch.float32)
        if targets.dtype == torch.int64 and classes is None:
            classes = int(targets.max()) + 1 if targets.numel() else 0
        several = list(inputs.values()) if isinstance(inputs, dict) else inputs
        tensors = list(several) if isinstance(several, (tuple, list)) else [several]
        if tokens is None:
            tokens = max(
                (int(x.max()) + 1 for x in tensors if x.dtype == torch.int64 and x.numel()), default=0
            )
        plain = isinstance(inputs, Tensor) and (
            (inputs.dtype == torch.uint8 and inputs.dim() == 4) or inputs.dtype == torch.float32
        )
        if plain and targets.dtype == torch.int64 and targets.dim() == 1 and inputs.dim() > 1:
            return Dataset(inputs, targets, classes or 0, names, name)
        return ArrayDataset(inputs, targets, classes or 0, tokens, class_names=names, name=name)
    if classes is None:
        classes = len(names) if names is not None else _count_classes(data, collate, name)
    return IndexedDataset(data, collate, classes, tokens or 0, names, name)


def load_user_dataset(spec: str) -> tuple[DataSource, DataSource]:
    """Call what the spec names and check what it returns.

    An exception of the function is left as it is: its traceback is what the user needs.
    """
    function = import_by_name(spec, DataError)
    if not callable(function):
        raise DataError(f"{spec}: is a {type(function).__name__}, not a function that returns train and test")
    result = function()
    if not (isinstance(result, tuple | list) and len(result) == 2 and not isinstance(result[0], Tensor)):
        raise DataError(
            f"{spec}: must return (train, test), two data sets (cutlayer.data.Dataset, a torch Dataset, or a "
            f"sequence of (inputs, target)); it returned {type(result).__name__}"
        )
    train, test = (as_dataset(part, name=spec.partition(":")[2]) for part in result)
    check_alike(train, test, spec)
    return train, test


def check_alike(train: DataSource, test: DataSource, where: object) -> None:
    """Raise DataError unless both splits have one form."""
    a, b = train.form, test.form
    if a == b:
        return
    if a.plain and b.plain:
        raise DataError(
            f"{where}: train has samples {list(train.shape)} of {a.outputs} classes, "
            f"test {list(test.shape)} of {b.outputs}; they must agree"
        )
    pairs = zip((*a.inputs, a.target), (*b.inputs, b.target), strict=False)
    what = next((f"{x} and {y}" for x, y in pairs if x != y), "another number of inputs")
    raise DataError(f"{where}: train and test must have one form; they have {what}")


def _is_source(data: Any) -> bool:
    return all(hasattr(data, name) for name in ("form", "batch", "select", "labels"))


def _tensors(data: Any) -> tuple[Any, Tensor] | None:
    """Inputs and targets of a whole split, if the data are tensors in memory."""
    if isinstance(data, TensorDataset) and type(data) is TensorDataset and len(data.tensors) >= 2:
        *inputs, targets = data.tensors
        return (inputs[0] if len(inputs) == 1 else tuple(inputs)), targets
    if not (isinstance(data, tuple) and len(data) == 2 and isinstance(data[1], Tensor) and data[1].dim()):
        return None
    inputs = data[0]
    tensors = (
        inputs.values() if isinstance(inputs, dict) else inputs if isinstance(inputs, tuple) else [inputs]
    )
    return (inputs, data[1]) if all(isinstance(x, Tensor) for x in tensors) else None


def _count_classes(data: Any, collate: Collate | None, name: str) -> int:
    """How many values integer targets have; 0 if they are not integers."""
    names = getattr(data, "classes", None)
    if isinstance(names, (list, tuple)) and names:
        return len(names)
    blank = IndexedDataset(data, collate, 1 << 31, name=name)
    if blank.form.target.dtype != "int64":
        return 0
    pieces = torch.split(torch.arange(len(blank)), 256)
    return 1 + max(int(blank.batch(piece)[1].max()) for piece in pieces)
