"""A loss function of one's own as a task: no metric but the loss."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from cutlayer.errors import TaskError
from cutlayer.tasks.base import Task
from cutlayer.tasks.targets import Floats, Integers, Target, TargetCodec


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
        found = self.function(outputs, targets)
        if not isinstance(found, Tensor) or found.numel() != 1:
            raise TaskError(f"the loss must be a tensor of one number, not {_short(found)}")
        return found.reshape(())


def target_codec(target: Target) -> TargetCodec:
    """How targets of that form travel."""
    return Floats(target.shape) if target.kind == "floats" else Integers(target.values, target.shape)


def _short(value: Any) -> str:
    return f"one of shape {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
