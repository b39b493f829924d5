"""How clients' vectors become one: the weighted mean, or a rule that a few liars cannot move far.

Under `median` and `trimmed` each coordinate of the result lies between values of honest clients, as long as
liars are fewer than half, or fewer than are trimmed. Both treat clients alike, whatever their samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class MeanRule:
    """How what clients share is averaged."""

    kind: Literal["mean", "median", "trimmed"] = "mean"
    trim: float = 0.2
    """trimmed: which share of the clients is left out at each end of every coordinate."""
    clip_norm: float = 0.0
    """Gradients with a larger norm are scaled down to it; 0 for no limit."""

    needs_all: bool = field(init=False, repr=False)
    """Whether all vectors must be there before one can be left out."""

    def __post_init__(self) -> None:
        """A server asks for it at every share, so it is found once."""
        object.__setattr__(self, "needs_all", self.kind != "mean")

    def clipped(self, gradients: Tensor) -> Tensor:
        """A client's gradients, scaled down to the largest norm that is allowed."""
        if not self.clip_norm:
            return gradients
        norm = float(torch.linalg.vector_norm(gradients))
        return gradients if norm <= self.clip_norm else gradients * (self.clip_norm / norm)

    def combine(self, vectors: Sequence[Tensor]) -> Tensor:
        """The median or the trimmed mean of each coordinate.

        >>> MeanRule("median").combine([torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([1e6])])
        tensor([2.])
        """
        stacked = torch.stack(list(vectors)).sort(dim=0).values
        n = len(vectors)
        out = (n - 1) // 2 if self.kind == "median" else min(int(self.trim * n), (n - 1) // 2)
        return stacked[out : n - out].mean(dim=0)
