"""Data sets made of arrays of any dtype and shape, in memory or read from a file as they are needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from cutlayer.data.form import DataForm, Inputs, Statistics
from cutlayer.errors import DataError


class Rows(Protocol):
    """Rows that can be taken by their numbers, wherever they are."""

    def __len__(self) -> int:
        """How many rows there are."""

    def take(self, indices: Tensor) -> Tensor:
        """The rows of these numbers as one tensor."""


@dataclass(frozen=True, eq=False)
class MemoryRows:
    """Rows of a tensor in memory."""

    tensor: Tensor

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.tensor)

    def take(self, indices: Tensor) -> Tensor:
        """See `Rows.take`."""
        return self.tensor[indices]


@dataclass(frozen=True, eq=False)
class _Chosen:
    """Some of the rows."""

    rows: Rows
    indices: Tensor

    def __len__(self) -> int:
        return len(self.indices)

    def take(self, indices: Tensor) -> Tensor:
        return self.rows.take(self.indices[indices])


@dataclass(frozen=True, eq=False)
class ArrayDataset:
    """One split whose inputs and targets are arrays.

    `inputs` is one array, or several in a tuple or a dict; an array is a tensor or other `Rows`. Integer
    targets are 0 to classes - 1, integer inputs 0 to tokens - 1. `where` names a sample for errors.

        ArrayDataset(torch.rand(100, 8), torch.rand(100), name="houses")
    """

    inputs: Tensor | Rows | tuple[Tensor | Rows, ...] | Mapping[str, Tensor | Rows]
    targets: Tensor | Rows
    classes: int = 0
    tokens: int = 0
    ignore: int | None = None
    """A value of masks that is no class, and stands for pixels that count for nothing."""
    class_names: tuple[str, ...] | None = None
    name: str = "custom"
    statistics: Statistics | None = None
    """What float features are standardised with; None: they are used as they are."""
    where: Callable[[int], str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Check lengths and a first sample; each batch is checked when it is taken."""
        lengths = {len(rows) for rows in (*self._rows, self._target)}
        if len(lengths) != 1:
            raise DataError(
                f"{self.name}: inputs and targets have {sorted(lengths)} samples; give one of each"
            )
        if 0 in lengths:
            raise DataError(f"{self.name}: the split is empty; each split needs at least one sample")
        if self.class_names is not None and len(self.class_names) != self.classes:
            raise DataError(f"{self.name}: {len(self.class_names)} class names for {self.classes} classes")
        target = self.form.target
        if target.dtype == "int64" and self.classes < 1:
            raise DataError(f"{self.name}: targets are integers; say how many classes there are")
        if target.dtype not in ("int64", "bool", "float32"):
            raise DataError(f"{self.name}: targets must be int64, bool or float32, not {target.dtype}")
        for form in self.form.inputs:
            if not form.shape:
                raise DataError(f"{self.name}: inputs must be [N, ...]; make one number a sample [N, 1]")

    def __len__(self) -> int:
        """The number of samples."""
        return len(self._target)

    @cached_property
    def form(self) -> DataForm:
        """See `DataSource.form`."""
        one = torch.zeros(1, dtype=torch.int64)
        inputs, targets = self._taken(one)
        return DataForm.of(inputs, targets, tokens=self.tokens, classes=self.classes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample's first input."""
        return self.form.inputs[0].shape

    @cached_property
    def labels(self) -> Tensor | None:
        """See `DataSource.labels`."""
        if self.form.target.dtype != "int64" or self.form.target.shape:
            return None
        return self._target.take(torch.arange(len(self)))

    def batch(self, indices: Tensor) -> tuple[Inputs, Tensor]:
        """See `DataSource.batch`. What is read from a file may be damaged: values are checked here."""
        inputs, targets = self._taken(indices)
        named = inputs if isinstance(inputs, dict) else {"": inputs} if isinstance(inputs, Tensor) else None
        tensors = list(named.values()) if named is not None else list(inputs)
        limits = ((targets, self.classes, self.ignore), *((x, self.tokens, None) for x in tensors))
        for tensor, limit, ignore in limits:
            bad = first_bad(tensor, limit, ignore)
            if bad is not None:
                place, reason = bad
                raise DataError(f"{self._named(int(indices[place]))} {reason}; correct it or leave it out")
        return inputs, targets

    def select(self, indices: Tensor) -> ArrayDataset:
        """See `DataSource.select`. Rows in memory are copied; others are still read as needed."""

        def chosen(rows: Tensor | Rows) -> Tensor | Rows:
            return rows[indices] if isinstance(rows, Tensor) else _Chosen(rows, indices)

        inputs = self.inputs
        if isinstance(inputs, Mapping):
            inputs = {key: chosen(rows) for key, rows in inputs.items()}
        elif isinstance(inputs, tuple):
            inputs = tuple(chosen(rows) for rows in inputs)
        else:
            inputs = chosen(inputs)
        return replace(
            self,
            inputs=inputs,
            targets=chosen(self.targets),
            where=lambda index: self._named(int(indices[index])),
        )

    def _named(self, index: int) -> str:
        return f"{self.name}: sample {index}" if self.where is None else self.where(index)

    def _taken(self, indices: Tensor) -> tuple[Inputs, Tensor]:
        taken = [rows.take(indices) for rows in self._rows]
        if isinstance(self.inputs, Mapping):
            return dict(zip(self.inputs, taken, strict=True)), self._target.take(indices)
        return (tuple(taken) if isinstance(self.inputs, tuple) else taken[0]), self._target.take(indices)

    @cached_property
    def _rows(self) -> Sequence[Rows]:
        given = self.inputs
        several = (
            list(given.values())
            if isinstance(given, Mapping)
            else list(given)
            if isinstance(given, tuple)
            else [given]
        )
        return [_as_rows(rows) for rows in several]

    @cached_property
    def _target(self) -> Rows:
        return _as_rows(self.targets)


def _as_rows(rows: Tensor | Rows) -> Rows:
    return MemoryRows(rows) if isinstance(rows, Tensor) else rows


def first_bad(tensor: Tensor, limit: int = 0, ignore: int | None = None) -> tuple[int, str] | None:
    """The first sample with a value that cannot be, and why; None if there is none.

    Floats must be finite, and integers 0 to limit - 1, or `ignore`; a limit of 0 allows all.
    """
    if tensor.is_floating_point():
        wrong, reason = ~torch.isfinite(tensor), "holds NaN or infinity"
    elif tensor.dtype == torch.int64 and limit:
        wrong, reason = (tensor < 0) | (tensor >= limit), f"holds an integer outside 0 to {limit - 1}"
        if ignore is not None:
            wrong &= tensor != ignore
    else:
        return None
    if not bool(wrong.any()):
        return None
    return int(wrong.reshape(len(wrong), -1).any(1).nonzero()[0, 0]), reason
