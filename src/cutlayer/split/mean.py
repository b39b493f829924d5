"""Weighted means over clients of gradients, weights and batch-norm statistics. Pure functions.

Callers add clients in client order, never in order of arrival, so that the result does not depend on the
network.
"""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

Weighting = Literal["clients", "samples"]


def mean_weights(samples: Sequence[int], weighting: Weighting) -> list[float]:
    """The weight of each client in a mean: equal, as in the paper, or proportional to its number of samples.

    >>> mean_weights([30, 10], "samples")
    [0.75, 0.25]
    """
    if weighting == "samples":
        total = sum(samples)
        return [count / total for count in samples]
    return [1 / len(samples) for _ in samples]


def add_weighted(total: Tensor | None, vector: Tensor, weight: float) -> Tensor:
    """Add weight times vector to a running sum, in place; `total` is None before the first vector.

    A mean over clients is one call for each client. A single vector of weight 1 is returned unchanged, so a
    run with one client equals ordinary training bit for bit.
    """
    if total is None:
        return vector if weight == 1.0 else vector * weight
    return total.add_(vector, alpha=weight)
