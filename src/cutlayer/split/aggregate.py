"""What is averaged over clients: gradients, weights, batch-norm statistics. Pure functions.

Sums run in client order, never in order of arrival: the result must not depend on the network.
"""

from collections.abc import Sequence
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
    return [1 / len(samples) for _ in samples]


def add_weighted(total: Tensor | None, vector: Tensor, weight: float) -> Tensor:
    """The sum so far (None before the first) plus weight times vector. `total` is written to.

    A mean over clients is made of these, one client at a time. One vector of weight 1 comes back bit for
    bit, so a run with one client is plain training.
    """
    if total is None:
        return vector if weight == 1.0 else vector * weight
    return total.add_(vector, alpha=weight)
