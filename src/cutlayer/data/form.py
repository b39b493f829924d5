"""The form of data: names, dtypes and shapes of inputs and targets, which all parties of a run agree on.

`DataSource` is what the rest of the program asks of any data set, in memory or not: its form and its batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from cutlayer.errors import DataError

#: What a model takes: one tensor, or several by position or by name. Samples are in front.
Inputs = Tensor | tuple[Tensor, ...] | dict[str, Tensor]

DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name)
    for name in ("float16", "bfloat16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64")
} | {"bool": torch.bool}


@dataclass(frozen=True)
class TensorForm:
    """One tensor of a sample."""

    dtype: str
    shape: tuple[int, ...]
    values: int = 0
    """Integers are 0 to values - 1, such as tokens of a vocabulary; 0 where that is not known."""
    name: str = ""

    @staticmethod
    def of(batch: Tensor, values: int = 0, name: str = "") -> TensorForm:
        """The form of one sample of a batch."""
        return TensorForm(str(batch.dtype).removeprefix("torch."), tuple(batch.shape[1:]), values, name)

    @staticmethod
    def parse(found: Mapping[str, Any]) -> TensorForm:
        """The form from plain JSON."""
        return TensorForm(found["dtype"], tuple(found["shape"]), found["values"], found["name"])

    def zeros(self, samples: int) -> Tensor:
        """A blank batch of this form."""
        return torch.zeros(samples, *self.shape, dtype=DTYPES[self.dtype])

    def describe(self) -> str:
        """The form in words."""
        return f"{self.name + ': ' if self.name else ''}{self.dtype} {list(self.shape)}"


@dataclass(frozen=True)
class DataForm:
    """The inputs and the target of one sample."""

    inputs: tuple[TensorForm, ...]
    target: TensorForm
    container: Literal["tensor", "tuple", "dict"] = "tensor"

    @staticmethod
    def of(inputs: Inputs, targets: Tensor, *, tokens: int = 0, classes: int = 0) -> DataForm:
        """The form of a batch. `tokens` and `classes` are how many values its integers can have."""
        target = TensorForm.of(targets, classes if not targets.is_floating_point() else 0)
        container: Literal["tensor", "tuple", "dict"]
        if isinstance(inputs, Tensor):
            named, container = {"": inputs}, "tensor"
        elif isinstance(inputs, dict):
            named, container = inputs, "dict"
        else:
            named, container = {str(i): x for i, x in enumerate(inputs)}, "tuple"
        forms = tuple(
            TensorForm.of(x, tokens if x.dtype == torch.int64 else 0, name) for name, x in named.items()
        )
        return DataForm(forms, target, container)

    @property
    def pixels(self) -> bool:
        """Whether samples are uint8 images, which are augmented and normalized."""
        first = self.inputs[0]
        return self.container == "tensor" and first.dtype == "uint8" and len(first.shape) == 3

    @property
    def channels(self) -> int:
        """How many channels have statistics: those of images and of float features; none otherwise."""
        first = self.inputs[0]
        scaled = self.pixels or first.dtype == "float32"
        return first.shape[0] if self.container == "tensor" and scaled and first.shape else 0

    @property
    def classed(self) -> bool:
        """Whether the target is the number of a class."""
        return self.target.dtype == "int64" and not self.target.shape

    @property
    def plain(self) -> bool:
        """Whether samples are images or float features, and targets are class numbers."""
        scaled = self.pixels or (self.container == "tensor" and self.inputs[0].dtype == "float32")
        return scaled and self.classed

    @property
    def outputs(self) -> int:
        """How many outputs a model needs: classes, labels, the vocabulary, or the floats of a target."""
        target = self.target
        if target.dtype == "bool" or target.dtype.startswith(("float", "bfloat")):
            return math.prod(target.shape)
        return target.values

    def pack(self, tensors: list[Tensor]) -> Inputs:
        """Tensors, in the order of `inputs`, as the model takes them."""
        if self.container == "tensor":
            return tensors[0]
        if self.container == "tuple":
            return tuple(tensors)
        return {form.name: x for form, x in zip(self.inputs, tensors, strict=True)}

    def zeros(self, samples: int) -> tuple[Inputs, Tensor]:
        """A blank batch of this form."""
        return self.pack([form.zeros(samples) for form in self.inputs]), self.target.zeros(samples)

    def check(self, inputs: Inputs, targets: Tensor, where: str) -> None:
        """Raise DataError unless a batch has this form."""
        found = DataForm.of(inputs, targets)
        expected = [(form.name, form.dtype, form.shape) for form in (*self.inputs, self.target)]
        given = [(form.name, form.dtype, form.shape) for form in (*found.inputs, found.target)]
        if found.container != self.container or given != expected:
            pairs = zip((*found.inputs, found.target), (*self.inputs, self.target), strict=False)
            differing = ((a, b) for a, b in pairs if (a.name, a.dtype, a.shape) != (b.name, b.dtype, b.shape))
            what = next(
                (f"{a.describe()}, not {b.describe()}" for a, b in differing), "another number of inputs"
            )
            raise DataError(
                f"{where}: has {what}; all samples of a data set have one form. Pad or convert them, for "
                "example in the collate function"
            )

    def check_inputs(self, inputs: Inputs) -> None:
        """Raise DataError unless samples without targets, for a trained model, have this form."""
        blank = torch.zeros(1)
        if isinstance(inputs, Tensor) and self.container == "tensor":
            # Its dtype may be another one: pre-processing converts pixels and features.
            given, expected = list(inputs.shape[1:]), list(self.inputs[0].shape)
            if given != expected:
                raise DataError(f"samples have the shape {given}, but the model takes {expected}")
            return
        found = DataForm.of(inputs, blank)
        given_forms = {(form.name, form.dtype, form.shape) for form in found.inputs}
        if found.container != self.container or given_forms != {
            (form.name, form.dtype, form.shape) for form in self.inputs
        }:
            told, wanted = (
                f"a {form.container} of {', '.join(each.describe() for each in form.inputs)}"
                for form in (found, self)
            )
            raise DataError(f"samples are {told}, but the model takes {wanted}")
        several = inputs.values() if isinstance(inputs, dict) else inputs
        lengths = sorted({len(tensor) for tensor in several})
        if len(lengths) > 1:
            raise DataError(f"inputs have {lengths} samples; give one of each for every sample")


@dataclass(frozen=True)
class Statistics:
    """Mean and standard deviation of each channel: of pixels scaled to 0..1, or of float features."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


class DataSource(Protocol):
    """A train or a test split of any kind."""

    @property
    def name(self) -> str:
        """The data set's name."""

    @property
    def form(self) -> DataForm:
        """What a sample consists of."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample's first input, [C, H, W] for images."""

    @property
    def statistics(self) -> Statistics | None:
        """What samples are to be standardised with, if the data say; None if they do not."""

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the target's values, if these have names."""

    @property
    def labels(self) -> Tensor | None:
        """The class of each sample, int64 [N], where targets are classes; None otherwise."""

    def __len__(self) -> int:
        """The number of samples."""

    def batch(self, indices: Tensor) -> tuple[Inputs, Tensor]:
        """The inputs and targets of these samples, as they are stored."""

    def select(self, indices: Tensor) -> DataSource:
        """A data set of the given samples, in the given order."""
