"""Table 1: what each policy must send to reach the baseline's test accuracy.

The target is the best test accuracy that the baseline (no compression; same cut, data, epochs, schedule and
seeds) has at the end of any of its epochs, less a tolerance of 0, 0.5 or 1 points. A policy reaches it at the
end of its first epoch with at least that accuracy. The multiple saved is what the baseline had sent when it
first reached the same target, over what the policy had sent. INF: the target was not reached within the run.
With several seeds, accuracies are means over the seeds that both have, epoch by epoch. A policy whose epochs
or schedule no baseline has is not compared: it has no control.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

from cutlayer.errors import RecordError
from cutlayer.reproduce.convergence.curves import BASELINE, Point, mean, read_curves
from cutlayer.reproduce.convergence.rows import NO_CONTROL, Groups, Row, best, rows, spreads
from cutlayer.reproduce.convergence.time_to_accuracy import read_step_times, time_table
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


class Comparison:
    """A policy compared with its control, on the seeds that both have."""

    def __init__(self, row: Row, tolerance: float, seed: tuple[int, ...] | None = None) -> None:
        sides = (tuple(run for run in side if seed in (None, run.seeds)) for side in row.shared())
        mine, base = (mean(side) for side in sides)
        self.curve, self.seeds = mine, mine.seeds
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
    groups = rows(read_curves(out))
    tables = [
        _multiples(groups, "smashed", "smashed", "Multiples saved, smashed data up (Table 1)"),
        _multiples(groups, "all-traffic", "total", "Multiples saved, all traffic up and down"),
        _details(groups),
        _by_seed(groups),
        Table("paper", "The paper's Table 1", ("data", "cut", "QU", "SP", "MS", "RT"), _PAPER),
    ]
    times = read_step_times(out)
    if times.seconds:
        tables.insert(3, time_table(groups, times))
    if len({task for task, _ in groups}) == 1:
        tables = [_without(table, "task") for table in tables]
    plots = [_time_plot(key, group) for key, group in groups.items()]
    return Findings("Traffic to reach the baseline's accuracy (Table 1)", _claims(groups), tables, plots)


def _multiples(groups: Groups, id_: str, cost: str, title: str) -> Table:
    """A line for each cut and recipe: policies are compared with the baseline of their own recipe."""
    found = [row for group in groups.values() for row in group]
    policies = list(dict.fromkeys(row.first.policy for row in found if not row.is_baseline))
    lines: list[list[object]] = []
    for tolerance in TOLERANCES:
        for (task, cut), group in groups.items():
            for recipe in dict.fromkeys(row.first.recipe for row in group):
                same = {row.first.policy: row for row in group if row.first.recipe == recipe}
                some = next(iter(same.values()))
                base = same.get(BASELINE)
                target = Comparison(base, tolerance).target if base and base.control else None
                told = None if target is None else f"{target:.2f}"
                line = [_target(tolerance), task, cut, some.first.epochs, some.first.schedule, told]
                lines.append([*line, *(_saved(same.get(name), tolerance, cost) for name in policies)])
    columns = ("target", "task", "cut", "epochs", "schedule", "target %", *policies)
    return Table(id_, title, columns, lines)


def _saved(row: Row | None, tolerance: float, cost: str) -> str | None:
    if row is None:
        return None
    return Comparison(row, tolerance).saved(cost) if row.shared()[0] else NO_CONTROL


def _details(groups: Groups) -> Table:
    columns = (
        *("target", "task", "cut", "policy", "epochs", "schedule", "seeds", "best %"),
        *("best to none's", "low", "high", "epoch", "GB up", "GB in all", "transfer hours"),
    )
    spread = spreads(groups, best)
    lines: list[list[object]] = []
    for tolerance in TOLERANCES:
        for (task, cut), group in groups.items():
            for row in group:
                first = row.first
                line = [_target(tolerance), task, cut, first.label, first.epochs, first.schedule]
                if not row.shared()[0]:
                    own = mean(row.runs)
                    line += [len(row.runs), own.best if own.points else None]
                    lines.append([*line, None, None, None, NO_CONTROL, *_costs(None)])
                    continue
                race, found = Comparison(row, tolerance), row.compare(spread[task], best)
                ends = [None] * 3 if found is None else [*astuple(found.difference)]
                at = INF if race.reached is None else f"{race.reached.epoch:.0f}"
                lines.append([*line, len(race.seeds), race.best, *ends, at, *_costs(race.reached)])
    title = "Bytes, and hours of transfer at 100 Mbps, until the target is reached"
    return Table("details", title, columns, lines)


def _by_seed(groups: Groups) -> Table:
    columns = (
        *("task", "cut", "policy", "epochs", "seed", "baseline's best %", "best %"),
        *map(_target, TOLERANCES),
    )
    lines: list[list[object]] = []
    for group in groups.values():
        for row in group:
            if row.is_baseline:
                continue
            for run, theirs in zip(*row.shared(), strict=True):
                races = [Comparison(row, tolerance, run.seeds) for tolerance in TOLERANCES]
                line: list[object] = [run.task, run.cut, run.label, run.epochs, run.seeds[0]]
                line += [theirs.best, races[0].best]
                lines.append(line + [race.saved("smashed") for race in races])
    return Table("by-seed", "Multiples of smashed data saved, seed by seed", columns, lines)


def _time_plot(key: tuple[str, str], group: Sequence[Row]) -> Plot:
    task, cut = key
    means = {row.first.label: mean(row.runs).points for row in group}
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
        chosen = [row for group in groups.values() for row in group if row.first.label in labels]
        races = {
            tolerance: [Comparison(row, tolerance) for row in chosen if row.shared()[0]]
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
    return ", ".join(f"{race.curve.label} {race.curve.cut} {race.saved('smashed')}" for race in races)


def _target(tolerance: float) -> str:
    return f"within {tolerance:g} points" if tolerance else "baseline's best"


def _costs(point: Point | None) -> list[object]:
    if point is None:
        return [None] * 3
    return [point.smashed / 1e9, point.total / 1e9, point.transfer / 3600]
