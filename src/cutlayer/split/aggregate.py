"""What is averaged over clients: gradients, weights, batch-norm statistics. Pure functions.

Sums run in client order, never in order of arrival: the result must not depend on the network.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from torch import Tensor

Weighting = Literal["clients", "samples"]


def shares(samples: Sequence[int], weighting: Weighting) -> list[float]:
    """Each client's weight in a mean: equal, as in the paper, or by how many samples it brought.

    >>> shares([30, 10], "samples")
    [0.75, 0.25]
    """
    if weighting == "samples":
        total = sum(samples)
        return [count / total for count in samples]
    return [1 / len(samples)] * len(samples)


def weighted_sum(vectors: Iterable[Tensor], weights: Sequence[float]) -> Tensor:
    """The sum of weight times vector, in the order given. The vectors may come one at a time.

    One vector of weight 1 comes back bit for bit, so a run with one client is plain training.
    """
    total: Tensor | None = None
    for vector, weight in zip(vectors, weights, strict=True):
        total = vector * weight if total is None else total.add_(vector, alpha=weight)
    if total is None:
        raise ValueError("there is nothing to average")
    return total


def mean(vectors: Sequence[Tensor], samples: Sequence[int], weighting: Weighting = "clients") -> Tensor:
    """The mean over clients of gradients, of weights, or of batch-norm running statistics."""
    return weighted_sum(vectors, shares(samples, weighting))
