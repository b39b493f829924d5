"""Paired comparisons: two policies on the same seeds, and whether one is at most a margin worse.

The margin is stated before the runs. A policy is non-inferior if the whole confidence interval of its mean
difference lies above minus the margin; that an interval contains 0 shows nothing.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, TypeVar

from cutlayer.analysis.statistics import Interval, mean_interval, t_quantile
from cutlayer.errors import InputError

Pair = TypeVar("Pair", bound=Hashable)
"""What a pair shares: a seed, or a cut and a seed."""

Verdict = Literal["non-inferior", "inferior", "undecided"]

MARGIN = 0.3
"""Points of accuracy that count as no loss."""

_FEW = 3
"""With fewer pairs, an interval from them alone says next to nothing: Student's factor is 12.7 for two."""


@dataclass(frozen=True)
class Spread:
    """The standard deviation of a paired difference, pooled over several comparisons."""

    deviation: float
    freedom: int


@dataclass(frozen=True)
class PairedComparison:
    """The differences of two policies, pair by pair."""

    pairs: int
    difference: Interval
    """The mean difference with Student's interval; infinite ends if there is one pair and no spread."""
    margin: float
    pooled: bool = False
    """Whether the interval uses the spread of other comparisons, too."""

    @property
    def verdict(self) -> Verdict:
        """Non-inferior or inferior if the whole interval is on that side of minus the margin."""
        if self.difference.low > -self.margin:
            return "non-inferior"
        return "inferior" if self.difference.high < -self.margin else "undecided"


def differences(ours: Mapping[Pair, float], theirs: Mapping[Pair, float]) -> list[float]:
    """Ours less theirs, pair by pair. Values without a partner are left out."""
    return [value - theirs[pair] for pair, value in ours.items() if pair in theirs]


def paired(
    ours: Mapping[Pair, float],
    theirs: Mapping[Pair, float],
    margin: float = MARGIN,
    *,
    confidence: float = 0.95,
    spread: Spread | None = None,
) -> PairedComparison:
    """Compare two policies pair by pair. Values without a partner are left out.

    With fewer than three pairs the interval uses `spread`, if it is given, and so assumes that these pairs
    scatter as the others do.

    >>> paired({0: 70.0, 1: 71.0, 2: 70.6}, {0: 70.1, 1: 71.0, 2: 70.7}).verdict
    'non-inferior'
    """
    found = differences(ours, theirs)
    if not found:
        raise InputError("nothing to compare: the two have no pair in common")
    if len(found) < _FEW and spread is not None:
        return with_spread(found, spread, margin, confidence)
    if len(found) == 1:
        return PairedComparison(1, Interval(found[0], -math.inf, math.inf), margin)
    return PairedComparison(len(found), mean_interval(found, confidence), margin)


def with_spread(
    found: Sequence[float], spread: Spread, margin: float = MARGIN, confidence: float = 0.95
) -> PairedComparison:
    """The comparison for differences whose spread is known from elsewhere, or from within their groups."""
    mean = fmean(found)
    half = t_quantile(spread.freedom, confidence) * spread.deviation / math.sqrt(len(found))
    return PairedComparison(len(found), Interval(mean, mean - half, mean + half), margin, pooled=True)


def pooled_spread(comparisons: Iterable[Sequence[float]]) -> Spread | None:
    """The spread of differences around the mean of their own comparison; None if none has two of them."""
    squares, freedom = 0.0, 0
    for found in comparisons:
        if len(found) > 1:
            mean = fmean(found)
            squares += sum((value - mean) ** 2 for value in found)
            freedom += len(found) - 1
    return Spread(math.sqrt(squares / freedom), freedom) if freedom else None
