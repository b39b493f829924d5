"""How long training takes on links of several rates: bytes of the records, and step times of an idle machine.

Times in the records are those of a machine that trains several runs at once, so they are not used. Seconds
of a step come from `step-times.json` beside the results, which `benchmarks/step_times.py` writes. Clients
compute and transfer at the same time, each on a link of its own, and the server waits for them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutlayer.errors import RecordError
from cutlayer.reproduce.convergence.curves import BASELINE, Curve, Point, mean
from cutlayer.reproduce.convergence.rows import Groups, Row
from cutlayer.reproduce.results import Table

#: Where step times are, in the folder of the results.
STEP_TIMES = "step-times.json"
#: Megabits a second, up and down.
RATES = (1, 10, 100, 1000)
TOLERANCE = 0.5
"""Points below the baseline's best accuracy that count as reached."""
NEVER = "INF"


@dataclass(frozen=True)
class StepTimes:
    """The seconds of a step without transfer, by cut and policy."""

    seconds: Mapping[tuple[str, str], float]
    width: int | None = None
    """Of the model that was measured: runs of other widths have other times. None: of all runs."""

    def of(self, curve: Curve, policy: str) -> float | None:
        """With this policy, in the model of the run; None if that was not measured."""
        width = json.loads(curve.recipe)["model.width"]
        return self.seconds.get((curve.cut, policy)) if self.width in (None, width) else None


@dataclass(frozen=True)
class Course:
    """A way to some accuracy: how many steps, and the bytes of each client."""

    steps: float
    nbytes: float
    step_seconds: float

    @staticmethod
    def of(curve: Curve, point: Point, step_seconds: float) -> Course:
        """Of a run, until the end of an epoch. Its clients have equal parts."""
        return Course(point.steps, point.total / curve.clients, step_seconds)

    def hours(self, mbit: float) -> float:
        """The time on links of so many megabits a second."""
        return (self.steps * self.step_seconds + 8 * self.nbytes / (1e6 * mbit)) / 3600


def read_step_times(out: Path) -> StepTimes:
    """The measured seconds of a step, of a client and then of the server; empty if there are none."""
    path = out / STEP_TIMES
    if not path.exists():
        return StepTimes({})
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        seconds = {
            (cut, policy): float(one["client_seconds"]) + float(one["server_seconds"])
            for cut, policies in content["cuts"].items()
            for policy, one in policies.items()
        }
        return StepTimes(seconds, content.get("settings", {}).get("width"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{path}: is damaged ({error}); measure again: benchmarks/step_times.py") from error


def time_table(groups: Groups, times: StepTimes) -> Table:
    """A line for each policy that was measured: hours at each rate, and where it takes longer than none."""
    lines: list[list[object]] = []
    for (task, cut), group in groups.items():
        for row in group:
            seconds, plain = times.of(row.first, row.first.policy), times.of(row.first, BASELINE)
            if seconds is None or plain is None or not row.shared()[0] or not row.first.equal_parts:
                continue
            ours, theirs = (mean(side) for side in row.shared())
            target = theirs.best - TOLERANCE
            ends = {
                f"within {TOLERANCE} points": (ours.reach(target), theirs.reach(target)),
                "all epochs": (ours.last, theirs.last),
            }
            for what, (own, base) in ends.items():
                if base is None or (row.is_baseline and own is None):
                    continue
                start: list[object] = [task, cut, row.first.label, what, len(ours.seeds)]
                usual = Course.of(theirs, base, plain)
                if own is None or ours.diverged:
                    lines.append([*start, None, seconds, *[NEVER] * len(RATES), None, "at any rate"])
                    continue
                lines.append([*start, *_told(row, own, Course.of(ours, own, seconds), usual)])
    columns = (
        *("task", "cut", "policy", "target", "seeds", "epoch", "step, s"),
        *(f"hours at {rate} Mbit/s" for rate in RATES),
        *("pays below, Mbit/s", "does not pay"),
    )
    title = (
        f"Time to {TOLERANCE} points below the baseline's best, and of the whole run: transfer on a link for "
        "each client, and step times of an idle machine"
    )
    return Table("time-to-accuracy", title, columns, lines)


def _told(row: Row, own: Point, ours: Course, usual: Course) -> list[object]:
    hours = [ours.hours(rate) for rate in RATES]
    told: list[object] = [own.epoch, ours.step_seconds, *hours]
    if row.is_baseline:
        return [*told, None, None]
    longer = [
        str(rate) for rate, own_hours in zip(RATES, hours, strict=True) if own_hours >= usual.hours(rate)
    ]
    return [
        *told,
        break_even(ours, usual),
        f"at {', '.join(longer)} Mbit/s" if longer else "pays at all of these",
    ]


def break_even(ours: Course, usual: Course) -> float | None:
    """The rate below which ours is faster than the usual course; None if it is at every rate, or at none."""
    saved = 8 * (usual.nbytes - ours.nbytes) / 1e6
    more = ours.steps * ours.step_seconds - usual.steps * usual.step_seconds
    if more <= 0 or saved <= 0:
        return None
    rate = saved / more
    return rate if math.isfinite(rate) else None
