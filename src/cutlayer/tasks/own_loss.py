"""A loss function of one's own as a task: alone, or with the metrics of another task."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from cutlayer.errors import TaskError
from cutlayer.tasks.base import Floats, Integers, Target, TargetCodec, Task
from cutlayer.tasks.metric import Metric


@dataclass(frozen=True)
class OwnLoss(Task):
    """`function(outputs, targets)` gives the mean loss of a batch, as those of torch.nn do."""

    function: Callable[[Any, Tensor], Tensor]
    targets: TargetCodec

    @staticmethod
    def of(function: Callable[[Any, Tensor], Tensor], target: Target) -> "OwnLoss":
        """The task for such targets."""
        return OwnLoss(function, target_codec(target))

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """See `Task.loss`."""
        if isinstance(outputs, Tensor) and isinstance(self.targets, Floats) and _column(outputs, targets):
            outputs = outputs.reshape(targets.shape)
        found = self.function(outputs, targets)
        if not isinstance(found, Tensor) or found.numel() != 1:
            raise TaskError(f"the loss must be a tensor of one number, not {_short(found)}")
        return found.reshape(())


@dataclass(frozen=True)
class OwnLossWithMetrics(OwnLoss):
    """A loss of one's own, with targets and metrics as `base` has them."""

    base: Task

    @property
    def metrics(self) -> tuple[Metric, ...]:  # type: ignore[override]
        """See `Task.metrics`."""
        return self.base.metrics

    @property
    def sum_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """See `Task.sum_names`."""
        return self.base.sum_names

    def sums(self, outputs: Any, targets: Tensor) -> Sequence[float]:
        """See `Task.sums`. The loss stands first."""
        _, *others = self.base.sums(outputs, targets)
        return [float(self.loss(outputs, targets)) * len(targets), *others]

    def results(self, sums: Sequence[float], samples: int) -> dict[str, float]:
        """See `Task.results`."""
        return self.base.results(sums, samples)

    def impossible(self, sums: Sequence[float], samples: int) -> str | None:
        """See `Task.impossible`."""
        return self.base.impossible(sums, samples)


def target_codec(target: Target) -> TargetCodec:
    """How targets of that form travel."""
    return Floats(target.shape) if target.kind == "floats" else Integers(target.values, target.shape)


def _column(outputs: Tensor, targets: Tensor) -> bool:
    """Whether outputs [N, 1] stand for targets [N], or the other way round: a loss would broadcast them."""
    one_each = outputs.dim() > 0 and outputs.numel() == len(outputs) == targets.numel() == len(targets)
    return one_each and outputs.shape != targets.shape


def _short(value: Any) -> str:
    return f"one of shape {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
