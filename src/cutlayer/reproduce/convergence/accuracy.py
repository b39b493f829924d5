"""Fig. 3: training loss and test accuracy, epoch by epoch, for every policy and cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from cutlayer.config.recipes import CUTS
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

MARGIN = 0.5
"""Points. The paper calls MS on ResNet34 half a point below the baseline `slightly lower`."""

_COLUMNS = (
    *("cut", "policy", "seeds", "accuracy %", "lowest %", "highest %", "best %", "to none"),
    *("train loss", "error", "GB up", "smaller"),
)
"""Accuracies and loss after the last epoch (`best`: of any epoch), means over seeds and their ends; points of
accuracy to the baseline; relative squared error; smashed data up, and how much smaller than float32."""


def findings(out: Path) -> Findings:
    """Tables, curves and what they say about the paper's claims, from all runs that have ended."""
    groups = grouped(read_curves(out))
    several = len({task for task, _ in groups}) > 1
    tables, plots = [], []
    for task in dict.fromkeys(task for task, _ in groups):
        rows = [row for (t, _), group in groups.items() if t == task for row in _rows(group)]
        named = f" ({task})" if several else ""
        tables.append(Table(_id("accuracy", task, several), f"After the last epoch{named}", _COLUMNS, rows))
    for name, title, x, y in _PLOTS:
        for (task, cut), group in groups.items():
            where = f"{task}, {cut} cut" if several else f"{cut} cut"
            plots.append(_plot(_id(name, task, several) + f"-{cut}", f"{title}, {where}", x, y, group))
    gaps = _gaps(groups)
    return Findings("Convergence under compression (Fig. 3)", _claims(gaps), tables, plots)


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


def _plot(id_: str, title: str, x: Measure, y: Measure, group: dict[str, list[Curve]]) -> Plot:
    series = []
    for label, runs in group.items():
        middle = mean(runs).points
        if not middle:
            continue
        spread = [[y[2](run.points[i]) for run in runs] for i in range(len(middle))]
        several = len(runs) > 1
        series.append(
            Series(
                label,
                [x[2](point) for point in middle],
                [y[2](point) for point in middle],
                [min(values) for values in spread] if several else None,
                [max(values) for values in spread] if several else None,
            )
        )
    return Plot(id_, title, "line", Axis(x[0], x[1]), Axis(y[0], y[1]), series)


def _rows(group: dict[str, list[Curve]]) -> list[list[object]]:
    rows: list[list[object]] = []
    for label, runs in group.items():
        ended = [run for run in runs if not run.diverged]
        row: list[object] = [runs[0].cut, label, len(runs)]
        if not ended:
            rows.append([*row, f"diverged: {runs[0].diverged}", *[None] * (len(_COLUMNS) - 4)])
            continue
        middle = mean(ended)
        scores = [run.last.accuracy for run in ended]
        row += [middle.last.accuracy, min(scores), max(scores), middle.best, _gap(ended, group)]
        row += [middle.last.train_loss, sum(p.error for p in middle.points) / len(middle.points)]
        rows.append([*row, middle.last.smashed / 1e9, middle.last.raw / middle.last.smashed])
    return rows


def _gap(runs: Sequence[Curve], group: dict[str, list[Curve]]) -> float | None:
    """Points of accuracy after the last epoch above the baseline with the same seeds."""
    ours, theirs = shared_seeds(runs, [run for run in group.get(BASELINE, []) if not run.diverged])
    return mean(ours).last.accuracy - mean(theirs).last.accuracy if ours else None


def _gaps(groups: dict[tuple[str, str], dict[str, list[Curve]]]) -> dict[str, dict[str, float]]:
    """Policy to task and cut to its distance from the baseline; a run that diverged is far below."""
    gaps: dict[str, dict[str, float]] = {}
    tasks = {task for task, _ in groups}
    for (task, cut), group in groups.items():
        for label, runs in group.items():
            if label == BASELINE:
                continue
            ended = [run for run in runs if not run.diverged]
            gap = _gap(ended, group) if ended else float("-inf")
            if gap is not None:
                gaps.setdefault(label, {})[cut if len(tasks) == 1 else f"{task} {cut}"] = gap
    return gaps


def _claims(gaps: dict[str, dict[str, float]]) -> list[Claim]:
    claims = []
    for label in ("MS(0.99, 2)", "MS(0.99, 2) nearest"):
        if label in gaps:
            good = [gap >= -MARGIN - 1e-9 for gap in gaps[label].values()]
            claims.append(
                Claim(
                    f"{label} matches the baseline (at most {MARGIN} points below it after the last epoch)",
                    _verdict(good),
                    _told({label: gaps[label]}),
                )
            )
    others: dict[str, dict[str, float]] = {
        label: gaps[label] for label in ("QU(3)", "SP(0.95875)", "RT(0.95875)") if label in gaps
    }
    if others:
        behind = [gap < -MARGIN - 1e-9 for cuts in others.values() for gap in cuts.values()]
        claims.append(
            Claim("QU, SP and RT fail to reach the baseline's accuracy", _verdict(behind), _told(others))
        )
    deeper = [
        cuts[b] >= cuts[a] for cuts in gaps.values() for a, b in pairwise(CUTS) if a in cuts and b in cuts
    ]
    if deeper:
        claims.append(
            Claim(
                "All codecs do better the deeper the cut is",
                _verdict(deeper),
                f"The distance to the baseline shrinks in {sum(deeper)} of {len(deeper)} steps from one cut "
                f"to the next deeper one. {_told(gaps)}",
            )
        )
    return claims


def _verdict(cases: Sequence[bool]) -> Holds:
    return True if all(cases) else "partly" if any(cases) else False


def _told(gaps: dict[str, dict[str, float]]) -> str:
    told = (
        f"{label}: " + ", ".join(f"{cut} {gap:+.2f}" for cut, gap in cuts.items())
        for label, cuts in gaps.items()
    )
    return "Points of accuracy to the baseline: " + "; ".join(told) + "."


def _id(name: str, task: str, several: bool) -> str:
    return f"{name}-{task}" if several else name
