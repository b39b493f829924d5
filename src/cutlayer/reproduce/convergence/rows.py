"""The rows of tables: the runs of one policy and recipe at one cut, beside their control.

The control of a row is the baseline with the same data, epochs and schedule. A row is compared with its
control only, seed by seed; a row without one is not compared with anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from cutlayer.analysis.paired import (
    MARGIN,
    PairedComparison,
    Spread,
    differences,
    paired,
    pooled_spread,
    with_spread,
)
from cutlayer.errors import RecordError
from cutlayer.reproduce.convergence.curves import BASELINE, Curve

_FREEDOM = 2
"""With fewer degrees of freedom, a policy's own spread within cuts says next to nothing."""

NO_CONTROL = "no control"
DIVERGED = "diverged"

Measure = Callable[[Curve], float]


def final(curve: Curve) -> float:
    """Test accuracy after the last epoch."""
    return curve.last.accuracy


def best(curve: Curve) -> float:
    """The best test accuracy of any epoch."""
    return curve.best


@dataclass(frozen=True)
class Row:
    """All runs of one policy and recipe at one cut, and those of their control."""

    runs: Sequence[Curve]
    control: Sequence[Curve]
    """The baseline's runs with the same recipe that ended well, of any seed."""

    def __post_init__(self) -> None:
        kinds = {(run.task, run.cut, run.recipe) for run in (*self.runs, *self.control)}
        if len(kinds) != 1 or len({run.policy for run in self.runs}) != 1:
            raise RecordError("only runs with the same data, cut, epochs and schedule can be compared")

    @property
    def first(self) -> Curve:
        """A run that says what all of them are."""
        return self.runs[0]

    @property
    def is_baseline(self) -> bool:
        """Whether this is a control of others."""
        return self.first.policy == BASELINE

    @property
    def ended(self) -> list[Curve]:
        """The runs that did not diverge."""
        return [run for run in self.runs if not run.diverged]

    def shared(self) -> tuple[list[Curve], list[Curve]]:
        """Our runs and the control's, with the seeds that both have."""
        theirs = {run.seeds: run for run in self.control}
        ours = [run for run in self.runs if run.seeds in theirs]
        return ours, [theirs[run.seeds] for run in ours]

    def differences(self, measure: Measure = final) -> list[float]:
        """Points above the control, seed by seed."""
        return differences(*self._by_seed(measure))

    def compare(self, spread: Spread | None, measure: Measure = final) -> PairedComparison | None:
        """The comparison with the control; None for the baseline itself, or if there is no pair."""
        if self.is_baseline or not self.differences(measure):
            return None
        ours, theirs = self._by_seed(measure)
        return paired(ours, theirs, MARGIN, spread=spread)

    def verdict(self, found: PairedComparison | None) -> str | None:
        """What a table says of the comparison."""
        if self.is_baseline:
            return None
        if len(self.ended) < len(self.runs):
            return DIVERGED
        return NO_CONTROL if found is None else found.verdict

    def _by_seed(self, measure: Measure) -> tuple[dict[tuple[int, ...], float], ...]:
        return tuple({run.seeds: measure(run) for run in side} for side in (self.ended, self.control))


Groups = dict[tuple[str, str], list[Row]]
"""Task and cut to the rows there."""


def rows(curves: Iterable[Curve]) -> Groups:
    """All rows. Curves come in the order of tables."""
    by_place: dict[tuple[str, str], dict[tuple[str, str], list[Curve]]] = {}
    for curve in curves:
        place = by_place.setdefault((curve.task, curve.cut), {})
        place.setdefault((curve.policy, curve.recipe), []).append(curve)
    return {
        place: [
            Row(runs, [run for run in found.get((BASELINE, recipe), []) if not run.diverged])
            for (_, recipe), runs in found.items()
        ]
        for place, found in by_place.items()
    }


def spreads(groups: Groups, measure: Measure = final) -> dict[str, Spread | None]:
    """The spread of paired differences of each task, pooled over its policies, recipes and cuts."""
    return {
        task: pooled_spread(
            row.differences(measure)
            for (of, _), found in groups.items()
            if of == task
            for row in found
            if not row.is_baseline
        )
        for task, _ in groups
    }


def over_cuts(groups: Groups, task: str, spread: Spread | None) -> dict[str, tuple[Row, PairedComparison]]:
    """Each policy and recipe over all cuts of a task: its first row, and all its pairs together.

    A codec costs more at one cut than at another, so the spread is that within cuts; where a policy has too
    few pairs for one of its own, that of all policies. What diverged with any seed is left out: the mean of
    the others would flatter it.
    """
    same: dict[str, list[Row]] = {}
    for (of, _), found in groups.items():
        for row in found:
            if of == task and not row.is_baseline and row.shared()[0]:
                same.setdefault(row.first.label, []).append(row)
    compared = {}
    for label, chosen in same.items():
        within = [row.differences() for row in chosen]
        own = pooled_spread(within)
        known = own if own is not None and own.freedom >= _FREEDOM else spread
        if known is not None and all(len(row.ended) == len(row.runs) for row in chosen):
            everything = [value for values in within for value in values]
            found_ = replace(with_spread(everything, known, MARGIN), pooled=known is not own)
            compared[label] = chosen[0], found_
    return compared
