"""Data that a user gives as objects, as a run takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import data as torch_data

from cutlayer.config.schema import Config
from cutlayer.data import Augment, Dataset, partition
from cutlayer.data.federated import FederatedData
from cutlayer.errors import DataError

#: A data set of ours, one of PyTorch's, or inputs and targets as two tensors or arrays.
DataLike = Dataset | torch_data.Dataset[Any] | Sequence[Any]


def federated(train: DataLike, test: DataLike, config: Config) -> FederatedData:
    """Both splits, shared among the clients as the settings say."""
    both = as_datasets(train, test)
    parts = partition(config.data.partition, both[0].labels, config.train.clients, config.seed)
    return FederatedData(*both, Augment.of(both[0], config.data.augment), parts)


def as_datasets(train: DataLike, test: DataLike) -> tuple[Dataset, Dataset]:
    """Both splits as data sets that agree in shape and number of classes."""
    made = [
        given if isinstance(given, Dataset) else _read(given, what) for given, what in _named(train, test)
    ]
    classes = max(found.classes if isinstance(found, Dataset) else int(found[1].max()) + 1 for found in made)
    first, second = (
        found if isinstance(found, Dataset) else Dataset(found[0], found[1], classes) for found in made
    )
    if first.shape != second.shape or first.classes != second.classes:
        raise DataError(
            f"train has samples {list(first.shape)} of {first.classes} classes, test {list(second.shape)} of "
            f"{second.classes}; they must agree"
        )
    return first, second


def _named(train: DataLike, test: DataLike) -> list[tuple[DataLike, str]]:
    return [(train, "train"), (test, "test")]


def _read(given: Any, what: str) -> tuple[Tensor, Tensor]:
    """Inputs and targets."""
    if isinstance(given, tuple | list) and len(given) == 2 and not _is_sample(given[0]):
        return _tensors(given[0], given[1], what)
    try:
        samples = [given[i] for i in range(len(given))]
    except TypeError as error:
        raise DataError(
            f"{what}= is a {type(given).__name__}; expected (inputs, targets), or a data set with a length "
            "whose items are (input, target)"
        ) from error
    if not samples or not all(_is_sample(sample) for sample in samples):
        raise DataError(f"{what}=: every item must be (input, target), and there must be one at least")
    inputs = torch.stack([torch.as_tensor(sample[0]) for sample in samples])
    return _tensors(inputs, [int(sample[1]) for sample in samples], what)


def _is_sample(item: Any) -> bool:
    return isinstance(item, tuple | list) and len(item) == 2


def _tensors(inputs: Any, targets: Any, what: str) -> tuple[Tensor, Tensor]:
    try:
        x, y = torch.as_tensor(inputs), torch.as_tensor(targets)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{what}=: cannot be made tensors of ({error})") from error
    if x.is_floating_point():
        x = x.float()
    if y.is_floating_point() or y.is_complex():
        raise DataError(f"{what}=: targets are {y.dtype}; expected the numbers of classes, as integers")
    return x, y.long()
