"""What training asks of a task: targets to bytes and back, the loss, and the metrics of a whole test set."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from cutlayer.errors import MessageError, TaskError
from cutlayer.tasks.targets import TargetCodec

# No sum over a test batch is larger.
_LARGEST = 1e15

#: The metric of a task that has none but its loss.
LOSS = "test_loss"


@dataclass(frozen=True)
class Metric:
    """A metric's name, whether higher is better, and how it is shown."""

    name: str
    higher: bool = True
    percent: bool = False
    """A share from 0 to 1, which people read as per cent."""
    minor: bool = False
    """Left out where there is room for few columns."""

    def better(self, new: float, old: float) -> bool:
        """Whether a value is better than another one. NaN never is."""
        if math.isnan(new):
            return False
        return math.isnan(old) or (new > old if self.higher else new < old)

    def best(self, values: Sequence[float]) -> float:
        """The best of these values; NaN if there is none."""
        found = math.nan
        for value in values:
            found = value if self.better(value, found) else found
        return found

    def text(self, value: float) -> str:
        """A value for people."""
        return f"{value:.2%}" if self.percent else f"{value:.4g}"


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


def metrics_of(described: Mapping[str, Any]) -> tuple[Metric, ...]:
    """The metrics in what `Task.describe` gave. Raises KeyError, TypeError or ValueError if it is damaged."""
    found = tuple(Metric(**entry) for entry in described["metrics"])
    if not found or not all(isinstance(metric.name, str) for metric in found):
        raise ValueError("no metrics")
    return found


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
