"""Data that a user gives as objects, as a run takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import data as torch_data

from cutlayer.config.schema import Config
from cutlayer.data import DataSource, as_dataset
from cutlayer.data.federated import FederatedData
from cutlayer.data.user_dataset import check_alike
from cutlayer.errors import DataError
from cutlayer.protocol.build import federate

#: A data set of ours, one of PyTorch's, a sequence of (inputs, target), or all inputs and all targets.
DataLike = DataSource | torch_data.Dataset[Any] | Sequence[Any]


def federated(train: DataLike, test: DataLike, config: Config) -> FederatedData:
    """Both splits, shared among the clients as the settings say."""
    return federate(config, *as_datasets(train, test))


def as_datasets(train: DataLike, test: DataLike) -> tuple[DataSource, DataSource]:
    """Both splits as data sets of one form: the same inputs and targets, and as many classes and tokens."""
    first, second = _as_dataset(train, "train"), _as_dataset(test, "test")
    classes = max(first.form.target.values, second.form.target.values)
    tokens = max(form.values for split in (first, second) for form in split.form.inputs)
    # A split need not have a sample of each class.
    first = _as_dataset(train, "train", classes or None, tokens or None)
    second = _as_dataset(test, "test", classes or None, tokens or None)
    check_alike(first, second, "train= and test=")
    return first, second


def _as_dataset(given: Any, what: str, classes: int | None = None, tokens: int | None = None) -> DataSource:
    if isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[1], np.ndarray):
        given = (_tensors(given[0]), _tensors(given[1]))
    elif isinstance(given, str) or not (
        hasattr(given, "form") or (hasattr(given, "__len__") and hasattr(given, "__getitem__"))
    ):
        remedy = ""
        if isinstance(given, torch_data.DataLoader):
            remedy = ". Give its data set, loader.dataset; batch_size= is the size of batches"
        elif isinstance(given, str):
            remedy = ". Data by name have a test part: give train= as a name, and no test="
        raise DataError(
            f"{what}= is a {type(given).__name__}; expected (inputs, targets), or a data set with a length "
            f"whose items are (inputs, target){remedy}"
        )
    return as_dataset(given, classes=classes, tokens=tokens, name=what)


def _tensors(arrays: Any) -> Any:
    """Arrays of NumPy as tensors, alone, in tuples or in dicts."""
    if isinstance(arrays, dict):
        return {name: _tensors(array) for name, array in arrays.items()}
    if isinstance(arrays, tuple):
        return tuple(map(_tensors, arrays))
    found = torch.as_tensor(arrays)
    return found.float() if found.dtype == torch.float64 else found
