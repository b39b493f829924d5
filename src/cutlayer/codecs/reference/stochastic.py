"""Stochastic rounding of `ems`: magnitudes go up or down at random, and keep their means."""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from cutlayer.codecs.reference import philox

_MAX_STEPS = float(1 << 23)  # magnitudes are at most so many steps: whole numbers and halves are exact


def _round(x: Tensor, scale: float, words: Tensor) -> Tensor:
    """Magnitudes in steps, rounded up where a random 31-bit number is below the fraction (int64)."""
    steps = x.abs() * torch.tensor(scale, dtype=torch.float32, device=x.device)
    steps = steps.clamp_(max=_MAX_STEPS)
    whole = steps.floor()
    up_below = ((steps - whole) * 2.0**31).long()
    return whole.long() + ((words >> 1) < up_below)


def ems_quantize_stochastically(
    x: Tensor, scale: float, n_levels: int, seed: int, stream: int, section: int
) -> Tensor:
    """Levels by stochastic rounding; levels from `n_levels` on get the mark, `n_levels`."""
    words = philox.words(seed, stream, section, 0, x.numel(), x.device)
    return _round(x, scale, words).clamp_(max=n_levels).to(torch.uint8)


def ems_stochastic_tops(
    x: Tensor, levels: Tensor, scale: float, n_levels: int, seed: int, stream: int, section: int
) -> NDArray[Any]:
    """The levels of the marked elements, in order (int64), with the signs of their elements."""
    marked = levels == n_levels
    words = philox.words(seed, stream, section, 0, x.numel(), x.device)[marked]
    found = _round(x[marked], scale, words)
    return torch.where(x[marked] < 0, -found, found).cpu().numpy()


def random_words(seed: int, stream: int, section: int, first: int, n: int) -> NDArray[Any]:
    """Random 32-bit words, as int64, for the indices first ... first + n - 1."""
    return philox.words(seed, stream, section, first, n, torch.device("cpu")).numpy()
