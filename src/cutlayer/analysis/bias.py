"""Measure gradient bias: Theorem 1, Lemma 1 and the condition of Theorem 2 of the paper."""

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
    """A compressed gradient g^ compared with the true gradient g."""

    norm: float
    """||g^ - g||."""
    relative: float
    """||g^ - g|| / ||g||."""
    cosine: float
    """The cosine of the angle between g^ and g."""
    inner: float
    """<full, g^ - g> / ||full||^2. Theorem 2 gives the rate of uncompressed training where it is >= 0.

    The norm of a full gradient that was estimated from few batches is inflated by noise: use `inner_product`.
    """
    per_error: float
    """||g^ - g|| / E: H, or HJ, in Lemma 1. It has units: compare codecs with it, not cuts or models."""
    sensitivity: float
    """(||g^ - g|| / ||g||) / (||epsilon|| / ||x||): relative gradient error over relative compression error.
    Without units, so that it compares cuts and models, too."""


def compare_gradients(
    true: Gradient, compressed: Gradient, full: Gradient | None = None, part: str = "all"
) -> GradientError:
    """Compare a compressed gradient with the true one.

    Without a `full` gradient, the true one is used for it.
    """
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
        sensitivity=_ratio(_ratio(norm, size), math.sqrt(compressed.relative_error)),
    )


@dataclass(frozen=True)
class BiasTest:
    """A test whether the mean of random vectors differs from a target.

    The mean error of the first half of the draws gives a direction. The errors of the second half are
    projected on it. These are independent numbers, so an ordinary confidence interval holds, whatever the
    dimension. If it lies above 0, there is bias. It lies below 0 only by chance, because a bias points along
    the direction.
    """

    along: Interval
    """The error along the direction, over the norm of the target."""
    size: float
    """||E(v) - target|| / ||target||, with the part due to noise subtracted; 0 if noise explains all."""
    noise: float
    """The standard deviation of one draw, over the norm of the target."""
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
