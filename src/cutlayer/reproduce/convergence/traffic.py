"""Table 1: what each policy must send to reach the baseline's test accuracy.

The target is the best test accuracy that the baseline (no compression, same cut, same seeds) has at the
end of any of its epochs, less a tolerance of 0, 0.5 or 1 points. A policy reaches it at the end of its first
epoch with at least that accuracy. The multiple saved is what the baseline had sent when it first reached the
same target, over what the policy had sent. INF: the target was not reached within the run. With several
seeds, accuracies are means over the seeds that both have, epoch by epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cutlayer.errors import RecordError
from cutlayer.reproduce.convergence.curves import (
    BASELINE,
    Curve,
    Point,
    grouped,
    mean,
    read_curves,
    shared_seeds,
)
from cutlayer.reproduce.results import Axis, Claim, Findings, Holds, Plot, Series, Table

TOLERANCES = (0.0, 0.5, 1.0)
"""Points of accuracy below the baseline's best that still count as reached."""

INF = "INF"
MS = ("MS(0.99, 2)", "MS(0.99, 2) nearest")
OTHERS = ("QU(3)", "SP(0.95875)", "RT(0.95875)")

#: As printed: VGG19 on CIFAR-10, ResNet18 on CIFAR-100, ResNet34 on ImageNet-1K.
_PAPER = (
    ("CIFAR-10", "shallow", INF, INF, "13.11x", INF),
    ("CIFAR-10", "medium", "9.92x", "13.56x", "13.56x", "13.71x"),
    ("CIFAR-10", "deep", "10.37x", "13.56x", "13.63x", "13.71x"),
    ("CIFAR-100", "shallow", INF, INF, "12.53x", INF),
    ("CIFAR-100", "medium", INF, INF, "13.50x", INF),
    ("CIFAR-100", "deep", INF, INF, "12.29x", INF),
    ("ImageNet-1K", "shallow", INF, INF, INF, INF),
    ("ImageNet-1K", "medium", INF, INF, "13.20x", INF),
    ("ImageNet-1K", "deep", INF, INF, "12.32x", INF),
)

Groups = dict[tuple[str, str], dict[str, list[Curve]]]


class Comparison:
    """A policy compared with the baseline, on the seeds that both have."""

    def __init__(self, ours: Sequence[Curve], theirs: Sequence[Curve], tolerance: float) -> None:
        mine, base = mean(ours), mean(theirs)
        self.task, self.cut, self.label, self.seeds = mine.task, mine.cut, mine.label, mine.seeds
        self.best = mine.best if mine.points else float("nan")
        self.target = base.best - tolerance
        start = base.reach(self.target)
        if start is None:  # it reaches its own best unless its records have none
            raise RecordError(f"{base.task}, {base.cut}: the baseline's records have no test accuracy")
        self.baseline: Point = start
        # A policy that diverged with any seed has no mean to speak of.
        self.reached = None if mine.diverged else mine.reach(self.target)

    def saved(self, cost: str) -> str:
        """The multiple saved, in the paper's notation."""
        if self.reached is None:
            return INF
        return f"{getattr(self.baseline, cost) / getattr(self.reached, cost):.2f}x"


def findings(out: Path) -> Findings:
    """Tables and claims from all runs that have ended."""
    groups = grouped(read_curves(out))
    labels = list(dict.fromkeys(name for group in groups.values() for name in group if name != BASELINE))
    tables = [
        _multiples(groups, labels, "smashed", "smashed", "Multiples saved, smashed data up (Table 1)"),
        _multiples(groups, labels, "all-traffic", "total", "Multiples saved, all traffic up and down"),
        _details(groups),
        _by_seed(groups),
        Table("paper", "The paper's Table 1", ("data", "cut", "QU", "SP", "MS", "RT"), _PAPER),
    ]
    if len({task for task, _ in groups}) == 1:
        tables = [_without(table, "task") for table in tables]
    plots = [_time_plot(key, group) for key, group in groups.items()]
    return Findings("Traffic to reach the baseline's accuracy (Table 1)", _claims(groups), tables, plots)


def _races(group: dict[str, list[Curve]], tolerance: float) -> dict[str, Comparison]:
    races = {}
    for label, runs in group.items():
        ours, theirs = shared_seeds(runs, [run for run in group.get(BASELINE, []) if not run.diverged])
        if ours:
            races[label] = Comparison(ours, theirs, tolerance)
    return races


def _multiples(groups: Groups, labels: Sequence[str], id_: str, cost: str, title: str) -> Table:
    rows: list[list[object]] = []
    for tolerance in TOLERANCES:
        for (task, cut), group in groups.items():
            races = _races(group, tolerance)
            if races:
                target = races[BASELINE].target
                saved = [races[name].saved(cost) if name in races else None for name in labels]
                rows.append([_target(tolerance), task, cut, f"{target:.2f}", *saved])
    return Table(id_, title, ("target", "task", "cut", "target %", *labels), rows)


def _details(groups: Groups) -> Table:
    columns = (
        *("target", "task", "cut", "policy", "seeds", "best %", "epoch"),
        *("GB up", "GB in all", "hours", "transfer hours"),
    )
    rows: list[list[object]] = []
    for tolerance in TOLERANCES:
        for group in groups.values():
            for race in _races(group, tolerance).values():
                row = [_target(tolerance), race.task, race.cut, race.label, len(race.seeds), race.best]
                at = INF if race.reached is None else f"{race.reached.epoch:.0f}"
                rows.append([*row, at, *_costs(race.reached)])
    return Table("details", "Bytes and hours at 100 Mbps until the target is reached", columns, rows)


def _by_seed(groups: Groups) -> Table:
    columns = ("task", "cut", "policy", "seed", "baseline's best %", "best %", *map(_target, TOLERANCES))
    rows: list[list[object]] = []
    for group in groups.values():
        base = {run.seeds: run for run in group.get(BASELINE, []) if not run.diverged}
        for label, runs in group.items():
            for run in runs:
                if label == BASELINE or run.seeds not in base:
                    continue
                theirs = base[run.seeds]
                races = [Comparison([run], [theirs], tolerance) for tolerance in TOLERANCES]
                row: list[object] = [run.task, run.cut, label, run.seeds[0], theirs.best, races[0].best]
                rows.append(row + [race.saved("smashed") for race in races])
    return Table("by-seed", "Multiples of smashed data saved, seed by seed", columns, rows)


def _time_plot(key: tuple[str, str], group: dict[str, list[Curve]]) -> Plot:
    task, cut = key
    means = {label: mean(runs).points for label, runs in group.items()}
    series = [
        Series(label, [p.transfer / 3600 for p in points], [p.accuracy for p in points])
        for label, points in means.items()
        if points
    ]
    title = f"Accuracy against transfer time, {cut} cut"
    return Plot(
        f"time-{task}-{cut}",
        title,
        "line",
        Axis("hours of transfer at 100 Mbps", True),
        Axis("test accuracy, %"),
        series,
    )


def _claims(groups: Groups) -> list[Claim]:
    claims = []
    for labels, sentence in (
        (
            MS[:1],
            "MS, rounding down, reaches the baseline's accuracy (in the paper 13.11x to 13.63x on CIFAR-10)",
        ),
        (MS[1:], "MS, rounding to nearest, reaches the baseline's accuracy"),
        (OTHERS, "QU, SP and RT mostly fail to reach it (INF)"),
    ):
        races = {
            tolerance: [r for g in groups.values() for n, r in _races(g, tolerance).items() if n in labels]
            for tolerance in TOLERANCES
        }
        if not races[0.0]:
            continue
        reached = [(race.reached is not None) == (labels is not OTHERS) for race in races[0.0]]
        holds: Holds = True if all(reached) else "partly" if any(reached) else False
        told = "; ".join(f"{_target(t)}: {_summary(found)}" for t, found in races.items())
        claims.append(Claim(sentence, holds, f"{told}."))
    return claims


def _without(table: Table, column: str) -> Table:
    if column not in table.columns:
        return table
    place = list(table.columns).index(column)
    columns, *rows = ([*row[:place], *row[place + 1 :]] for row in (table.columns, *table.rows))
    return Table(table.id, table.title, columns, rows)


def _summary(races: Sequence[Comparison]) -> str:
    return ", ".join(f"{race.label} {race.cut} {race.saved('smashed')}" for race in races)


def _target(tolerance: float) -> str:
    return f"within {tolerance:g} points" if tolerance else "baseline's best"


def _costs(point: Point | None) -> list[object]:
    if point is None:
        return [None] * 4
    return [point.smashed / 1e9, point.total / 1e9, point.seconds / 3600, point.transfer / 3600]
