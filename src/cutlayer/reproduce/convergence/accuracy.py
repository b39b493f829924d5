"""Fig. 3: training loss and test accuracy, epoch by epoch, for every policy and cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from cutlayer.analysis.paired import MARGIN, PairedComparison
from cutlayer.config.recipes import CUTS
from cutlayer.reproduce.convergence.curves import Point, mean, read_curves
from cutlayer.reproduce.convergence.matrix import matrix
from cutlayer.reproduce.convergence.policies_plot import policies_plot
from cutlayer.reproduce.convergence.rows import Row, over_cuts, rows, spreads
from cutlayer.reproduce.results import Axis, Claim, Findings, Holds, Plot, Series, Table

_COMPARED = ("pairs", "to none", "low", "high", "interval", "verdict")
_COLUMNS = (
    *("cut", "policy", "epochs", "schedule", "seeds", "accuracy %", "lowest %", "highest %", "best %"),
    *(*_COMPARED, "train loss", "error"),
    *("GB up", "smaller", "GB in all", "all smaller"),
)
"""Accuracies and loss after the last epoch (`best`: of any epoch), means over seeds and their ends; points of
accuracy to the baseline with the same data, epochs, schedule and seeds, with a paired 95 % interval and the
verdict at the margin; relative squared error; smashed data up, and how much smaller than float32; the same
of all traffic."""

OWN, POOLED = "own pairs", "pooled spread"
"""Where the interval has its spread from: fewer than three pairs use that of all rows."""

Comparisons = dict[str, dict[str, PairedComparison | None]]
"""Label to task and cut to the comparison with the baseline; None if runs diverged."""


def findings(out: Path) -> Findings:
    """Tables, curves and what they say about the paper's claims, from all runs that have ended."""
    groups = rows(read_curves(out))
    tasks = list(dict.fromkeys(task for task, _ in groups))
    several = len(tasks) > 1
    spread = spreads(groups)
    compared = {
        place: {row.first.label: row.compare(spread[place[0]]) for row in found}
        for place, found in groups.items()
    }
    tables, plots = [], []
    for task in tasks:
        told = [
            _told_row(row, compared[place][row.first.label])
            for place, found in groups.items()
            if place[0] == task
            for row in found
        ]
        named = f" ({task})" if several else ""
        title = f"After the last epoch{named}. To none: same epochs, schedule, data and seed; {_margin()}"
        tables.append(Table(_id("accuracy", task, several), title, _COLUMNS, told))
    for task in tasks:
        named = f" ({task})" if several else ""
        title = f"All cuts together{named}: pairs by cut and seed, spread within cuts; {_margin()}"
        columns = ("policy", "epochs", "schedule", *_COMPARED)
        pooled = [
            [label, row.first.epochs, row.first.schedule, *_told(found), found.verdict]
            for label, (row, found) in over_cuts(groups, task, spread[task]).items()
        ]
        tables.append(Table(_id("all-cuts", task, several), title, columns, pooled))
        title = f"Final weights with other codecs{named}: test accuracy, %; trained with (rows), tested with"
        of_task = [row for place, found in groups.items() if place[0] == task for row in found]
        crossed = matrix(_id("matrix", task, several), title, of_task)
        tables += [crossed] if crossed else []
    for name, title, x, y in _PLOTS:
        for (task, cut), of_cut in groups.items():
            where = f"{task}, {cut} cut" if several else f"{cut} cut"
            plots.append(_plot(_id(name, task, several) + f"-{cut}", f"{title}, {where}", x, y, of_cut))
    for (task, cut), of_cut in groups.items():
        where = f"{task}, {cut} cut" if several else f"{cut} cut"
        title = f"Final accuracy and all traffic, {where}"
        plots.append(
            policies_plot(_id("policies", task, several) + f"-{cut}", title, of_cut, compared[task, cut])
        )
    by_label: Comparisons = {}
    for (task, cut), of_place in compared.items():
        for row in groups[task, cut]:
            found = of_place[row.first.label]
            if found is not None or (not row.is_baseline and not row.ended):
                by_label.setdefault(row.first.label, {})[f"{task} {cut}" if several else cut] = found
    return Findings("Convergence under compression (Fig. 3)", _claims(by_label), tables, plots)


Measure = tuple[str, bool, Callable[[Point], float]]
_EPOCH: Measure = ("epoch", False, lambda p: int(p.epoch))
_ACCURACY: Measure = ("test accuracy, %", False, lambda p: p.accuracy)
_PLOTS: tuple[tuple[str, str, Measure, Measure], ...] = (
    ("bytes", "Accuracy against bytes", ("smashed data up, GB", True, lambda p: p.smashed / 1e9), _ACCURACY),
    (
        "all-bytes",
        "Accuracy against all traffic",
        ("all bytes, GB", True, lambda p: p.total / 1e9),
        _ACCURACY,
    ),
    ("accuracy", "Test accuracy", _EPOCH, _ACCURACY),
    ("loss", "Training loss", _EPOCH, ("training loss", False, lambda p: p.train_loss)),
)


def _plot(id_: str, title: str, x: Measure, y: Measure, group: Sequence[Row]) -> Plot:
    series = []
    for row in group:
        middle = mean(row.runs).points
        if not middle:
            continue
        spread = [[y[2](run.points[i]) for run in row.runs] for i in range(len(middle))]
        several = len(row.runs) > 1
        series.append(
            Series(
                row.first.label,
                [x[2](point) for point in middle],
                [y[2](point) for point in middle],
                [min(values) for values in spread] if several else None,
                [max(values) for values in spread] if several else None,
            )
        )
    return Plot(id_, title, "line", Axis(x[0], x[1]), Axis(y[0], y[1]), series)


def _told_row(row: Row, found: PairedComparison | None) -> list[object]:
    start: list[object] = [row.first.cut, row.first.label, row.first.epochs, row.first.schedule]
    start.append(len(row.runs))
    if not row.ended:
        return [*start, f"diverged: {row.first.diverged}", *[None] * (len(_COLUMNS) - 6)]
    middle = mean(row.ended)
    scores = [run.last.accuracy for run in row.ended]
    start += [middle.last.accuracy, min(scores), max(scores), middle.best]
    start += [*_told(found), row.verdict(found)]
    start += [middle.last.train_loss, sum(p.error for p in middle.points) / len(middle.points)]
    start += [middle.last.smashed / 1e9, middle.last.raw / middle.last.smashed]
    return [*start, middle.last.total / 1e9, middle.last.raw_total / middle.last.total]


def _told(found: PairedComparison | None) -> list[object]:
    if found is None:
        return [None] * 5
    ends = found.difference
    return [found.pairs, ends.mean, ends.low, ends.high, POOLED if found.pooled else OWN]


def _claims(by_label: Comparisons) -> list[Claim]:
    claims = []
    for label in ("MS(0.99, 2)", "MS(0.99, 2) nearest", "EMS(1)"):
        if label in by_label:
            claims.append(
                Claim(
                    f"{label} matches the baseline ({_margin()})",
                    _all_cases(_verdicts(by_label[label].values()), "non-inferior", "inferior"),
                    _evidence({label: by_label[label]}),
                )
            )
    others: Comparisons = {
        label: by_label[label] for label in ("QU(3)", "SP(0.95875)", "RT(0.95875)") if label in by_label
    }
    if others:
        verdicts = [verdict for cuts in others.values() for verdict in _verdicts(cuts.values())]
        claims.append(
            Claim(
                f"QU, SP and RT fail to reach the baseline's accuracy (more than {MARGIN} points below it)",
                _all_cases(verdicts, "inferior", "non-inferior"),
                _evidence(others),
            )
        )
    steps = [
        _step(cuts[a], cuts[b])
        for cuts in by_label.values()
        for a, b in pairwise(CUTS)
        if a in cuts and b in cuts
    ]
    if steps:
        better, worse = steps.count("better"), steps.count("worse")
        claims.append(
            Claim(
                "All codecs do better the deeper the cut is",
                _all_cases(steps, "better", "worse"),
                f"Of {len(steps)} steps from one cut to the next deeper one, {better} bring a policy closer "
                f"to the baseline, {worse} bring it further away, and in {len(steps) - better - worse} the "
                f"intervals overlap. {_evidence(by_label)}",
            )
        )
    return claims


def _verdicts(found: Iterable[PairedComparison | None]) -> list[str]:
    return ["inferior" if one is None else one.verdict for one in found]


def _all_cases(verdicts: Sequence[str], good: str, bad: str) -> Holds:
    """True if all are good; undecided if none is bad and some cannot be told."""
    if all(verdict == good for verdict in verdicts):
        return True
    if good in verdicts and bad in verdicts:
        return "partly"
    return False if bad in verdicts else "undecided"


def _step(shallower: PairedComparison | None, deeper: PairedComparison | None) -> str:
    if shallower is None or deeper is None:
        return "undecided" if shallower is deeper else "better" if shallower is None else "worse"
    if deeper.difference.low > shallower.difference.high:
        return "better"
    return "worse" if deeper.difference.high < shallower.difference.low else "undecided"


def _evidence(by_label: Mapping[str, Mapping[str, PairedComparison | None]]) -> str:
    told = (
        f"{label}: " + ", ".join(f"{cut} {_case(found)}" for cut, found in cuts.items())
        for label, cuts in by_label.items()
    )
    return "Points of accuracy to the baseline: " + "; ".join(told) + "."


def _case(found: PairedComparison | None) -> str:
    if found is None:
        return "diverged"
    ends, number = found.difference, f"{found.pairs} pair{'s' if found.pairs > 1 else ''}"
    return f"{ends.mean:+.2f} [{ends.low:+.2f}, {ends.high:+.2f}] ({number}, {found.verdict})"


def _margin() -> str:
    return f"non-inferior if the interval is above -{MARGIN} points"


def _id(name: str, task: str, several: bool) -> str:
    return f"{name}-{task}" if several else name
