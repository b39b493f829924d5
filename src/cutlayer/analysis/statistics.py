"""Confidence intervals (Student, Wilson) and power-law fits, for the experiments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, fmean, stdev

from cutlayer.errors import InputError


@dataclass(frozen=True)
class Interval:
    """An estimate, and the ends of its confidence interval."""

    mean: float
    low: float
    high: float

    def excludes(self, value: float) -> bool:
        """Whether the value lies outside."""
        return not self.low <= value <= self.high


@dataclass(frozen=True)
class Fit:
    """y = factor * x^exponent, with the interval of the exponent and how much of log y it explains."""

    factor: float
    exponent: Interval
    r_squared: float


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """The mean of independent values with Student's interval."""
    if len(values) < 2:
        raise InputError(f"an interval needs two values or more, not {len(values)}")
    mean = fmean(values)
    half = t_quantile(len(values) - 1, confidence) * stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def share_interval(hits: int, count: int, confidence: float = 0.95) -> Interval:
    """A proportion of `count` independent trials with Wilson's interval, accurate near 0 and 1, too."""
    if not 0 <= hits <= count or count == 0:
        raise InputError(f"{hits} hits of {count} trials: expected 0 <= hits <= trials, and a trial")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, weight = hits / count, z * z / count
    centre = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * math.sqrt(share * (1 - share) / count + weight / (4 * count))
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half))


def power_law(x: Sequence[float], y: Sequence[float], confidence: float = 0.95) -> Fit:
    """The power law through positive points, by least squares of the logarithms."""
    if len(x) != len(y) or len(set(x)) < 3 or min([*x, *y]) <= 0:
        raise InputError("a power law needs three or more positive points at different x")
    u, v = [math.log(a) for a in x], [math.log(b) for b in y]
    mu, mv = fmean(u), fmean(v)
    spread = sum((a - mu) ** 2 for a in u)
    slope = sum((a - mu) * (b - mv) for a, b in zip(u, v, strict=True)) / spread
    left = sum((b - mv - slope * (a - mu)) ** 2 for a, b in zip(u, v, strict=True))
    total = sum((b - mv) ** 2 for b in v)
    half = t_quantile(len(x) - 2, confidence) * math.sqrt(left / (len(x) - 2) / spread)
    explained = 1 - left / total if total else 1.0
    return Fit(math.exp(mv - slope * mu), Interval(slope, slope - half, slope + half), explained)


@cache
def t_quantile(freedom: int, confidence: float) -> float:
    """The two-sided quantile of Student's distribution, from its exact distribution function."""
    low, high = 0.0, 1e4
    for _ in range(200):
        middle = (low + high) / 2
        if _inside(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return high


def _inside(t: float, freedom: int) -> float:
    """P(|T| <= t), by the finite series for whole degrees of freedom (Abramowitz and Stegun 26.7)."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, squared = math.sin(angle), math.cos(angle) ** 2
    even = freedom % 2 == 0
    term = total = 1.0 if even else math.cos(angle)
    for i in range(1, (freedom - 1 + even) // 2):
        term *= squared * ((2 * i - 1) / (2 * i) if even else 2 * i / (2 * i + 1))
        total += term
    if even:
        return sine * total
    return (2 / math.pi) * (angle + (sine * total if freedom > 1 else 0.0))
