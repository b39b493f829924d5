"""Multilabel: a target says yes or no to each of several labels; binary cross-entropy; micro-F1."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

from torch import Tensor
from torch.nn import functional as F

from cutlayer.errors import TaskError
from cutlayer.tasks.base import Integers, Target, Task, expect_shape
from cutlayer.tasks.metric import Metric


@dataclass(frozen=True)
class Multilabel(Task):
    """Each sample has any number of `labels` labels. A target travels in one bit a label."""

    name: ClassVar[str] = "multilabel"
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("micro_f1", percent=True),
        Metric("exact_match", percent=True),
    )
    sum_names: ClassVar[tuple[str, ...]] = (
        "loss",
        "exact matches",
        "true positives",
        "false positives",
        "false negatives",
    )

    labels: int

    @classmethod
    def of(cls, target: Target, **options: Any) -> Self:
        """The task for such targets."""
        if target.kind != "integers" or target.values > 2 or len(target.shape) != 1:
            raise TaskError(f"multilabel needs one bit for each label; the data have {target.describe()}")
        return cls(target.shape[0], **options)

    @cached_property
    def targets(self) -> Integers:  # type: ignore[override]
        """See `Task.targets`."""
        return Integers(2, (self.labels,))

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """See `Task.loss`. The mean over samples and labels."""
        logits = expect_shape(outputs, (len(targets), self.labels), self.name)
        return F.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype))

    def sums(self, outputs: Any, targets: Tensor) -> Sequence[float]:
        """See `Task.sums`. A label is said to be there if its logit is positive."""
        logits = expect_shape(outputs, (len(targets), self.labels), self.name)
        wanted, said = targets.bool(), logits > 0
        loss = F.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), reduction="sum")
        return (
            float(loss) / self.labels,
            int((wanted == said).all(1).sum()),
            int((wanted & said).sum()),
            int((~wanted & said).sum()),
            int((wanted & ~said).sum()),
        )

    def results(self, sums: Sequence[float], samples: int) -> dict[str, float]:
        """See `Task.results`. Without any label, said or wanted, micro-F1 is 1."""
        loss, exact, true, false_positives, false_negatives = sums
        counted = 2 * true + false_positives + false_negatives
        return {
            "loss": loss / samples,
            "micro_f1": 2 * true / counted if counted else 1.0,
            "exact_match": exact / samples,
        }

    def impossible(self, sums: Sequence[float], samples: int) -> str | None:
        """See `Task.impossible`."""
        _, exact, *counts = sums
        if not (0 <= exact <= samples and min(counts) >= 0 and sum(counts) <= samples * self.labels):
            return f"{exact:g} exact matches, {[int(n) for n in counts]} positives and negatives"
        return None
