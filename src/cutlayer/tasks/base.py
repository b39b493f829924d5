"""What training asks of a task: targets to bytes and back, the loss, and the sums that metrics are made of.

Targets travel as integers packed in as few bits as their range needs, or as frames of floats.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.codecs import codec, decode
from cutlayer.codecs.tensor_set.integers import pack_bits, unpack_bits
from cutlayer.errors import DataError, MessageError, TaskError
from cutlayer.tasks.metric import LOSS, Metric

# No sum over a test batch is larger.
_LARGEST = 1e15

# A frame's header has at most 64 bytes for four dimensions, and eight more for each further one.
_HEADER = 128


@dataclass(frozen=True)
class Target:
    """The form of one sample's target, as data have it."""

    kind: Literal["integers", "floats"]
    shape: tuple[int, ...] = ()
    values: int = 0
    """Integers are 0 to values - 1."""
    bits: bool = False
    """Whether integers are yes or no for each of several labels."""
    sequence: bool = False
    """Whether samples are sequences of tokens, and targets have one for each of these."""

    def describe(self) -> str:
        """The form in words."""
        many = f" of shape {list(self.shape)}" if self.shape else ""
        if self.kind == "floats":
            return f"floats{many}"
        return f"bits{many}" if self.bits else f"integers{many} from 0 to {self.values - 1}"


class TargetCodec(Protocol):
    """Turns the targets of a batch into bytes, and bytes from another party into targets."""

    def pack(self, targets: Tensor) -> bytes:
        """The targets of a batch as bytes."""

    def unpack(self, data: bytes, count: int) -> Tensor:
        """The targets of `count` samples. Raises MessageError if the bytes cannot be those."""

    def size(self, count: int) -> int:
        """The most bytes that the targets of `count` samples take."""


class Task(ABC):
    """A task, as both halves of a model and the evaluation use it.

    A task of one's own needs `targets`, how they travel, and `loss`. With `metrics` come `sum_names`, `sums`
    and `results`: a metric need not be a mean over samples, so each test batch gives sums that add up, and
    the totals of the whole test set give the metrics. Outputs and targets have the samples in front.
    """

    targets: TargetCodec
    metrics: ClassVar[tuple[Metric, ...]] = (Metric(LOSS, higher=False),)
    """The first is the main one: it decides which checkpoint is the best."""
    sum_names: ClassVar[tuple[str, ...]] = ("loss",)
    """What `sums` gives, in order. The first is the loss."""
    name: ClassVar[str] = ""
    """As in the setting `task.name`; empty for a task of one's own."""

    @abstractmethod
    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """The mean loss of a batch, which is minimised."""

    def batch_losses(self, outputs: Tensor, targets: Tensor, sizes: Sequence[int]) -> Tensor:
        """The mean loss of each of several batches that went through the model as one."""
        parts = torch.split(tensor_of(outputs), list(sizes))
        pairs = zip(parts, torch.split(targets, list(sizes)), strict=True)
        return torch.stack([self.loss(part, wanted) for part, wanted in pairs])

    def sums(self, outputs: Any, targets: Tensor) -> Sequence[float]:
        """What a test batch adds to the sums of the whole test set, one number for each of `sum_names`."""
        return [float(self.loss(outputs, targets)) * len(targets)]

    def results(self, sums: Sequence[float], samples: int) -> dict[str, float]:
        """The loss, under `loss`, and each metric under its name, from the sums of a test set."""
        return {"loss": sums[0] / samples}

    def impossible(self, sums: Sequence[float], samples: int) -> str | None:
        """What cannot be in the finite sums of so many samples that another party sent; None if all can."""
        return None

    def pack(self, targets: Tensor) -> bytes:
        """The targets of a batch as bytes."""
        return self.targets.pack(targets)

    def unpack(self, data: bytes, count: int) -> Tensor:
        """The targets in bytes from another party, `count` samples. Raises MessageError if they cannot be."""
        return self.targets.unpack(data, count)

    @property
    def main(self) -> Metric:
        """The metric that decides which checkpoint is the best."""
        return self.metrics[0]

    def check_sums(self, sums: Sequence[float], samples: int) -> None:
        """Raise MessageError for sums that cannot be those of so many samples."""
        if len(sums) != len(self.sum_names):
            raise MessageError(f"{len(sums)} sums of a test batch; this task has {len(self.sum_names)}")
        for name, value in zip(self.sum_names, sums, strict=True):
            if not abs(value) <= _LARGEST:
                raise MessageError(f"the sum {name!r} of a test batch is {value}")
        wrong = self.impossible(sums, samples)
        if wrong is not None:
            raise MessageError(f"the sums of a test batch of {samples} samples cannot be: {wrong}")

    def describe(self) -> dict[str, Any]:
        """The task's name and metrics as plain JSON, so that a run's records can be read without it."""
        return {"name": self.name or type(self).__name__, "metrics": [vars(m) for m in self.metrics]}


def tensor_of(outputs: Any) -> Tensor:
    """The model's outputs as a tensor: themselves, or their `logits`, as Hugging Face models call them."""
    if isinstance(outputs, Tensor):
        return outputs
    found = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", None)
    if found is None and isinstance(outputs, (tuple, list)) and outputs:
        found = outputs[0]
    if not isinstance(found, Tensor):
        raise TaskError(
            f"the model gives a {type(outputs).__name__}; a built-in task needs a tensor, or outputs with "
            "`logits`. Return one, or write a task of your own"
        )
    return found


def expect_shape(outputs: Any, shape: tuple[int, ...], what: str) -> Tensor:
    """The outputs as a tensor of that shape, or TaskError."""
    found = tensor_of(outputs)
    if tuple(found.shape) != shape:
        raise TaskError(
            f"the model gives outputs of shape {list(found.shape)}, but {what} needs {list(shape)} "
            "(samples in front); change the model's last layer, or the task"
        )
    return found


@dataclass(frozen=True)
class Integers:
    """Integers from 0 to values - 1, in ceil(log2(values)) bits each."""

    values: int
    shape: tuple[int, ...] = ()

    def pack(self, targets: Tensor) -> bytes:
        """See `TargetCodec.pack`."""
        flat = targets.reshape(-1).numpy() if targets.dtype == torch.int64 else _integers(targets)
        if self.shape and len(flat) and not 0 <= int(flat.min()) <= int(flat.max()) < self.values:
            raise DataError(
                f"targets from {int(flat.min())} to {int(flat.max())}, where 0 to {self.values - 1} can be; "
                "correct the data, or say how many classes there are"
            )
        return pack(flat, self.values)

    def unpack(self, data: bytes, count: int) -> Tensor:
        """See `TargetCodec.unpack`."""
        found = torch.from_numpy(unpack(data, count * math.prod(self.shape), self.values))
        return found.view(count, *self.shape) if self.shape else found

    def size(self, count: int) -> int:
        """See `TargetCodec.size`."""
        return (count * math.prod(self.shape) * bits_per_label(self.values) + 7) // 8


@dataclass(frozen=True)
class Floats:
    """Floats as a dense frame of float32."""

    shape: tuple[int, ...] = ()

    def pack(self, targets: Tensor) -> bytes:
        """See `TargetCodec.pack`."""
        return codec("dense").encode(targets.to(torch.float32))

    def unpack(self, data: bytes, count: int) -> Tensor:
        """See `TargetCodec.unpack`."""
        found: Tensor = decode(data, max_elements=count * math.prod(self.shape))
        if tuple(found.shape) != (count, *self.shape) or found.dtype != torch.float32:
            raise MessageError(
                f"targets of shape {list(found.shape)} of {found.dtype}; expected {[count, *self.shape]} of "
                "torch.float32"
            )
        if not bool(torch.isfinite(found).all()):
            raise MessageError("targets are not finite")
        return found

    def size(self, count: int) -> int:
        """See `TargetCodec.size`."""
        return 4 * count * math.prod(self.shape) + _HEADER


def bits_per_label(classes: int) -> int:
    """ceil(log2(classes)), at least 1."""
    return max(1, (classes - 1).bit_length())


def pack(labels: npt.NDArray[np.int64], classes: int) -> bytes:
    """Labels 0..classes-1 as bytes, the lowest bit of the first label first."""
    return pack_bits(labels.astype(np.uint64), bits_per_label(classes))


def unpack(packed: bytes, count: int, classes: int) -> npt.NDArray[np.int64]:
    """The labels in bytes from another party, checked: neither count nor values are believed."""
    bits = bits_per_label(classes)
    if len(packed) != (count * bits + 7) // 8:
        raise MessageError(
            f"{count} labels of {classes} classes take {(count * bits + 7) // 8} bytes, not {len(packed)}"
        )
    # In chunks: masks of a batch of images are millions of labels.
    labels = unpack_bits(memoryview(packed), count, bits).astype(np.int64)
    if count and int(labels.max()) >= classes:
        raise MessageError(f"a label is {int(labels.max())}; there are classes 0 to {classes - 1}")
    return labels


def _integers(targets: Tensor) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = targets.reshape(-1).to(torch.int64).numpy()
    return found
