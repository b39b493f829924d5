"""Top-k selection: the k largest magnitudes of each row; of equal ones, the first in order."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Top:
    """A selection of top values. If `largest` is not finite, `mask` is empty."""

    mask: Tensor
    negative: bool
    largest: float
    topmin: list[float]


def select_top(x: Tensor, k: int) -> Top:
    """Select the k largest magnitudes of each row."""
    magnitude = x.abs()
    largest = float(magnitude.max())
    if not torch.isfinite(magnitude).all():
        return Top(torch.empty(0), False, float("nan"), [])
    threshold = magnitude.kthvalue(x.shape[1] - k + 1, dim=1, keepdim=True).values
    above = magnitude > threshold
    ties = magnitude == threshold
    wanted = k - above.sum(dim=1, keepdim=True)
    mask = above | (ties & (ties.cumsum(dim=1) <= wanted))
    return Top(mask, bool((x < 0).any()), largest, threshold[:, 0].tolist())
