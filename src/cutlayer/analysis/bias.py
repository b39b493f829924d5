"""Gradient bias, the paper's subject: Theorem 1, Lemma 1 and the condition of Theorem 2, measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cutlayer.analysis.gradients import Gradient
from cutlayer.analysis.statistics import Interval, mean_interval
from cutlayer.errors import InputError


@dataclass(frozen=True)
class GradientError:
    """A compressed gradient beside the true one."""

    norm: float
    """||g^ - g||."""
    relative: float
    """||g^ - g|| / ||g||."""
    cosine: float
    """Of the angle between g^ and g."""
    inner: float
    """<full, g^ - g> / ||full||^2. Theorem 2 gives the rate of uncompressed training where it is >= 0."""
    per_error: float
    """||g^ - g|| / E: how much gradient error a unit of compression error makes; H, or HJ, in Lemma 1."""


def compare_gradients(
    true: Gradient, compressed: Gradient, full: Gradient | None = None, part: str = "all"
) -> GradientError:
    """Measure what compression did to a gradient. Without a `full` gradient, the true one stands for it."""
    g, h = true.vector(part), compressed.vector(part)
    f = g if full is None else full.vector(part)
    if not g.shape == h.shape == f.shape:
        raise InputError(f"gradients of {len(g)}, {len(h)} and {len(f)} elements are not of one model")
    difference = h - g
    norm, size = float(difference.norm()), float(g.norm())
    return GradientError(
        norm=norm,
        relative=_ratio(norm, size),
        cosine=_ratio(float(g @ h), size * float(h.norm())),
        inner=_ratio(float(f @ difference), float(f @ f)),
        per_error=_ratio(norm, compressed.error),
    )


@dataclass(frozen=True)
class BiasTest:
    """Whether the mean of random vectors differs from what they should be.

    Half of the draws choose a direction, in which the other half are then tested: the interval is a plain
    one of independent numbers, however many dimensions there are. Where it lies above 0 there is bias; below
    0 it can only lie by chance, because a bias would have turned the direction its own way.
    """

    along: Interval
    """The error along the direction, over the norm of the target."""
    size: float
    """||E(v) - target|| / ||target||, estimated without the part that is noise; 0 if noise explains all."""
    noise: float
    """The spread of one draw, over the norm of the target."""
    draws: int

    @property
    def biased(self) -> bool:
        """Whether the interval lies above 0."""
        return self.along.low > 0


def bias_test(draws: Sequence[Tensor], target: Tensor, confidence: float = 0.95) -> BiasTest:
    """Test whether independent random vectors have the expectation `target`."""
    if len(draws) < 4:
        raise InputError(f"a test for bias needs four draws or more, not {len(draws)}")
    goal = target.detach().double().reshape(-1)
    errors = torch.stack([d.detach().double().reshape(-1) for d in draws]) - goal
    scale = float(goal.norm()) or 1.0
    half = len(errors) // 2
    direction = errors[:half].mean(0)
    length = float(direction.norm())
    if length:
        direction = direction / length
    along = mean_interval((errors[half:] @ direction / scale).tolist(), confidence)
    mean = errors.mean(0)
    variance = float((errors - mean).square().sum()) / (len(errors) - 1)
    # E||mean||^2 = ||bias||^2 + variance / n
    squared = float(mean @ mean) - variance / len(errors)
    return BiasTest(
        along, math.sqrt(max(0.0, squared)) / scale, math.sqrt(variance) / scale, draws=len(errors)
    )


def _ratio(a: float, b: float) -> float:
    return a / b if b else (0.0 if a == 0 else math.inf)
