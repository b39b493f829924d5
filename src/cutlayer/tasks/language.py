"""Language: the target of each token is the next one; cross-entropy; perplexity and bits a character."""

import math
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

# exp of more is infinite, and JSON has no infinity.
_LARGEST_LOSS = 700.0


@dataclass(frozen=True)
class Language(Task):
    """Sequences of `context` tokens of a vocabulary; outputs are [N, context, vocabulary].

    Targets travel as the bits of their numbers: 7 for a vocabulary of 65 characters.
    """

    name: ClassVar[str] = "language"
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("perplexity", higher=False),
        Metric("bits_per_character", higher=False),
    )
    sum_names: ClassVar[tuple[str, ...]] = ("loss", "tokens")

    vocabulary: int
    context: int

    @classmethod
    def of(cls, target: Target, **options: Any) -> Self:
        """The task for such targets."""
        if target.kind != "integers" or len(target.shape) != 1:
            raise TaskError(f"language needs a token for each token; the data have {target.describe()}")
        return cls(target.values, target.shape[0], **options)

    @cached_property
    def targets(self) -> Integers:  # type: ignore[override]
        """See `Task.targets`."""
        return Integers(self.vocabulary, (self.context,))

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """See `Task.loss`. The mean over tokens."""
        return F.cross_entropy(self._logits(outputs, targets), targets.reshape(-1))

    def batch_losses(self, outputs: Tensor, targets: Tensor, sizes: Sequence[int]) -> Tensor:
        """See `Task.batch_losses`."""
        each = F.cross_entropy(self._logits(outputs, targets), targets.reshape(-1), reduction="none")
        parts = torch.split(each, [size * self.context for size in sizes])
        return torch.stack([part.mean() for part in parts])

    def sums(self, outputs: Any, targets: Tensor) -> Sequence[float]:
        """See `Task.sums`."""
        logits = self._logits(outputs, targets)
        return float(F.cross_entropy(logits, targets.reshape(-1), reduction="sum")), targets.numel()

    def results(self, sums: Sequence[float], samples: int) -> dict[str, float]:
        """See `Task.results`. A character is a token here; with bytes, it is a byte."""
        loss, tokens = sums
        mean = loss / tokens if tokens else math.nan
        return {
            "loss": mean,
            "perplexity": math.exp(min(mean, _LARGEST_LOSS)),
            "bits_per_character": mean / math.log(2),
        }

    def impossible(self, sums: Sequence[float], samples: int) -> str | None:
        """See `Task.impossible`."""
        loss, tokens = sums
        if tokens != samples * self.context:
            return f"{tokens:g} tokens"
        return "the loss is negative" if loss < 0 else None

    def _logits(self, outputs: Any, targets: Tensor) -> Tensor:
        expected = (len(targets), self.context, self.vocabulary)
        return expect_shape(outputs, expected, self.name).reshape(-1, self.vocabulary)
