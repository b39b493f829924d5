"""Any map-style data set as data of a run: `torch.utils.data.Dataset`, or a sequence of (inputs, targets).

Samples are asked for one by one, when a batch needs them, and put together by a collate function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from cutlayer.data.arrays import first_bad
from cutlayer.data.form import DataForm, Inputs, Statistics
from cutlayer.errors import CutlayerError, DataError

#: Makes (inputs, targets) of a list of samples.
Collate = Callable[[list[Any]], Any]


@dataclass(frozen=True, eq=False)
class IndexedDataset:
    """A split whose samples come from `source[i]`.

    `collate` makes a batch (inputs, targets) of a list of samples; by default samples are (inputs, target)
    and stacked. `classes` and `tokens` are how many values integer targets and inputs have.

        IndexedDataset(torchvision_dataset, classes=10)
    """

    source: Any
    collate: Collate | None = None
    classes: int = 0
    tokens: int = 0
    class_names: tuple[str, ...] | None = None
    name: str = "custom"
    statistics: Statistics | None = None
    indices: Tensor | None = field(default=None, repr=False)
    """Which samples of the source these are; None: all of them."""

    def __post_init__(self) -> None:
        """Check what can be known without asking for all samples."""
        if not hasattr(self.source, "__getitem__") or not hasattr(self.source, "__len__"):
            raise DataError(
                f"{self.name}: a {type(self.source).__name__} has no length and no samples by number; give a "
                "map-style Dataset or a sequence. Batches are chosen by (seed, client, epoch, step)"
            )
        if len(self) < 1:
            raise DataError(f"{self.name}: the split is empty; each split needs at least one sample")
        target = self.form.target
        if target.dtype not in ("int64", "bool", "float32"):
            raise DataError(f"{self.name}: targets must be int64, bool or float32, not {target.dtype}")
        if target.dtype == "int64" and self.classes < 1:
            raise DataError(f"{self.name}: targets are integers; say how many classes there are (classes=)")
        if self.class_names is not None and len(self.class_names) != self.classes:
            raise DataError(f"{self.name}: {len(self.class_names)} class names for {self.classes} classes")

    def __len__(self) -> int:
        """The number of samples."""
        return len(self.source) if self.indices is None else len(self.indices)

    @cached_property
    def form(self) -> DataForm:
        """See `DataSource.form`."""
        inputs, targets = self._collated([self._number(0)])
        return DataForm.of(inputs, targets, tokens=self.tokens, classes=self.classes)

    @property
    def shape(self) -> tuple[int, ...]:
        """See `DataSource.shape`."""
        return self.form.inputs[0].shape

    @cached_property
    def labels(self) -> Tensor | None:
        """See `DataSource.labels`. Asks for all samples, unless the source has `targets`."""
        if self.form.target.dtype != "int64" or self.form.target.shape:
            return None
        known = getattr(self.source, "targets", None)
        if self.collate is None and known is not None and len(known) == len(self.source):
            found = torch.as_tensor(known).to(torch.int64)
            return found if self.indices is None else found[self.indices]
        pieces = torch.split(torch.arange(len(self)), 256)
        return torch.cat([self.batch(piece)[1] for piece in pieces])

    def batch(self, indices: Tensor) -> tuple[Inputs, Tensor]:
        """See `DataSource.batch`."""
        numbers = [self._number(index) for index in indices.tolist()]
        inputs, targets = self._collated(numbers)
        self.form.check(inputs, targets, self._where(numbers))
        # Masks may have a value that is ignored, which only the task knows.
        limits = [(targets, 0 if targets.dim() > 1 else self.classes)]
        limits += [(x, self.tokens) for x in _values(inputs)]
        for tensor, limit in limits:
            bad = first_bad(tensor, limit)
            if bad is not None:
                place, reason = bad
                raise DataError(f"{self.name}: sample {numbers[place]} {reason}; correct it or leave it out")
        return inputs, targets

    def select(self, indices: Tensor) -> IndexedDataset:
        """See `DataSource.select`."""
        own = indices if self.indices is None else self.indices[indices]
        return IndexedDataset(
            self.source,
            self.collate,
            self.classes,
            self.tokens,
            self.class_names,
            self.name,
            self.statistics,
            own,
        )

    def _number(self, index: int) -> int:
        return index if self.indices is None else int(self.indices[index])

    def _where(self, numbers: Sequence[int]) -> str:
        return f"{self.name}: the batch of samples {', '.join(map(str, numbers[:3]))}, ..."

    def _collated(self, numbers: list[int]) -> tuple[Inputs, Tensor]:
        samples = []
        for number in numbers:
            try:
                samples.append(self.source[number])
            except CutlayerError:
                raise
            except Exception as error:  # the user's code: anything can come
                raise DataError(
                    f"{self.name}: sample {number} cannot be read ({type(error).__name__}: {error})"
                ) from error
        try:
            found = stack(samples) if self.collate is None else self.collate(samples)
        except CutlayerError:
            raise
        except Exception as error:
            raise DataError(
                f"{self._where(numbers)}: cannot be put together ({type(error).__name__}: {error}); give "
                "samples of one shape, or a collate function"
            ) from error
        return _pair(found, len(numbers), self.name)


def stack(samples: list[Any]) -> Any:
    """Samples as a batch: tensors, arrays and numbers are stacked, also within tuples and dicts."""
    first = samples[0]
    if isinstance(first, Mapping):
        return {key: stack([sample[key] for sample in samples]) for key in first}
    if isinstance(first, (tuple, list)):
        return tuple(stack(list(column)) for column in zip(*samples, strict=True))
    tensors = [torch.as_tensor(sample) for sample in samples]
    found = torch.stack(tensors)
    # Python's floats and NumPy's arrays are doubles unless somebody says otherwise; models are float32.
    unasked = found.dtype == torch.float64 and not isinstance(first, Tensor)
    return found.to(torch.float32) if unasked else found


def _pair(found: Any, count: int, name: str) -> tuple[Inputs, Tensor]:
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise DataError(
            f"{name}: samples must be (inputs, target), found {type(found).__name__}"
            + (f" of {len(found)}" if isinstance(found, (tuple, list, Mapping)) else "")
            + "; a collate function makes (inputs, targets) of other samples"
        )
    inputs, targets = found
    if isinstance(inputs, Mapping):
        inputs = dict(inputs)
    elif isinstance(inputs, list):
        inputs = tuple(inputs)
    if isinstance(targets, Tensor) and not targets.is_floating_point() and targets.dtype != torch.bool:
        targets = targets.to(torch.int64)
    elif isinstance(targets, Tensor) and targets.dtype == torch.float64:
        targets = targets.to(torch.float32)
    tensors = [inputs] if isinstance(inputs, Tensor) else list(_values(inputs))
    for tensor in (*tensors, targets):
        if not isinstance(tensor, Tensor) or tensor.dim() < 1 or len(tensor) != count:
            raise DataError(
                f"{name}: inputs must be a tensor, or a dict or tuple of tensors, and targets a tensor, with "
                f"the samples in front; found {type(tensor).__name__}"
                + (f" {list(tensor.shape)} for {count} samples" if isinstance(tensor, Tensor) else "")
            )
    if not tensors or any(x.dim() < 2 for x in tensors):
        several = "; a list of numbers counts as that many inputs, so make it a tensor"
        raise DataError(
            f"{name}: inputs must be [N, ...]; make one number a sample [N, 1]"
            + (several if isinstance(inputs, tuple) else "")
        )
    return inputs, targets


def _values(inputs: Any) -> Sequence[Any]:
    if isinstance(inputs, Mapping):
        return list(inputs.values())
    return list(inputs) if isinstance(inputs, tuple) else [inputs]
