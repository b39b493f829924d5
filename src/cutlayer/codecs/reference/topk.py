"""The top k of each row, exactly: among equal magnitudes the first win."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Top:
    """Which elements are top values; `mask` is void if `largest` is not finite."""

    mask: Tensor
    negative: bool
    largest: float
    topmin: list[float]


def select_top(x: Tensor, k: int) -> Top:
    """See `kernels.Kernels`."""
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
