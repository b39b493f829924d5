"""Classification: a target is the number of a class; cross-entropy; top-1 and top-5 accuracy."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from cutlayer.errors import TaskError
from cutlayer.tasks.base import Integers, Target, Task, expect_shape
from cutlayer.tasks.metric import Metric


@dataclass(frozen=True)
class Classification(Task):
    """Samples of `classes` classes. A target travels in as few bits as the number of classes needs."""

    name: ClassVar[str] = "classification"
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("accuracy", percent=True),
        Metric("accuracy_top5", percent=True, minor=True),
    )
    sum_names: ClassVar[tuple[str, ...]] = ("loss", "right", "right within five guesses")

    classes: int
    label_smoothing: float = 0.0
    """In training, so much of the target is shared among all classes."""

    def __post_init__(self) -> None:
        """Check the option."""
        if not 0 <= self.label_smoothing < 1:
            raise TaskError(f"task.label_smoothing is {self.label_smoothing}; expected 0 or more, below 1")

    @classmethod
    def of(cls, target: Target, **options: Any) -> Self:
        """The task for such targets."""
        if target.kind != "integers" or target.shape:
            raise TaskError(
                f"classification needs one class number a sample; the data have {target.describe()}"
            )
        return cls(target.values, **options)

    @cached_property
    def targets(self) -> Integers:  # type: ignore[override]
        """See `Task.targets`."""
        return Integers(self.classes)

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """See `Task.loss`."""
        logits = expect_shape(outputs, (len(targets), self.classes), self.name)
        return F.cross_entropy(logits, targets, label_smoothing=self.label_smoothing)

    def batch_losses(self, outputs: Tensor, targets: Tensor, sizes: Sequence[int]) -> Tensor:
        """See `Task.batch_losses`."""
        logits = expect_shape(outputs, (len(targets), self.classes), self.name)
        each = F.cross_entropy(logits, targets, reduction="none", label_smoothing=self.label_smoothing)
        if len(set(sizes)) == 1:  # the same bits, and one mean instead of one for each client
            return each.view(len(sizes), -1).mean(1)
        return torch.stack([part.mean() for part in torch.split(each, list(sizes))])

    def sums(self, outputs: Any, targets: Tensor) -> Sequence[float]:
        """See `Task.sums`."""
        logits = expect_shape(outputs, (len(targets), self.classes), self.name)
        loss = float(F.cross_entropy(logits, targets, reduction="sum"))
        best = logits.topk(min(5, logits.shape[1]), dim=1).indices == targets[:, None]
        return loss, int(best[:, 0].sum()), int(best.sum())

    def results(self, sums: Sequence[float], samples: int) -> dict[str, float]:
        """See `Task.results`."""
        loss, top1, top5 = sums
        return {"loss": loss / samples, "accuracy": top1 / samples, "accuracy_top5": top5 / samples}

    def impossible(self, sums: Sequence[float], samples: int) -> str | None:
        """See `Task.impossible`."""
        _, top1, top5 = sums
        return None if 0 <= top1 <= top5 <= samples else f"{top1:g} and {top5:g} right of {samples}"
