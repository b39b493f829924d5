"""Tables of the README and of docs/results/low-rates.md, and a picture, from the records of the runs.

    python -m website.result_tables

writes them. A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`; `TABLES` says what it
has. A test compares page and picture with the records.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cutlayer.analysis.paired import PairedComparison
from cutlayer.report.svg import draw
from cutlayer.reproduce.convergence.curves import Point, mean, read_curves
from cutlayer.reproduce.convergence.rows import Row, rows, spreads
from cutlayer.reproduce.results import Axis, Plot, Series
from website.pages import DOCS, ROOT

PAGES = (ROOT / "README.md", DOCS / "results" / "low-rates.md")
PICTURE = DOCS / "images" / "testbed.svg"
RESULTS = ROOT / "experiments" / "results"
_PLACE = re.compile(r"(?<=<!-- table: )([\w-]+)( -->\n).*?(?=<!-- end of table -->)", re.DOTALL)


_HUNDREDTH = "EMS(0.32)"
_ALL = f"{_HUNDREDTH}, all ways"
_BEST = f"{_ALL}, committed, unbiased down"
_PULLED = f"{_HUNDREDTH}, constant pull", f"{_ALL}, constant pull"
_NEAREST = "MS(0.99, 2) nearest"

#: How folders of runs end in which the first place of a max pool that ties got the whole gradient.
_FIRST = "-first-of-ties"

#: Rows of the README.
_WHAT = {
    "none": "nothing",
    _BEST: "everything: `ems`, 0.32 bits up, 1.6 down, 1.1 to average",
}


@dataclass(frozen=True)
class Line:
    """A row of runs, and its comparison with the control; None for the control itself."""

    scale: str
    row: Row
    compared: PairedComparison | None

    @property
    def policy(self) -> str:
        """What is compressed how."""
        return self.row.first.label

    @property
    def last(self) -> Point:
        """The end of the runs, mean over seeds."""
        return mean(self.row.ended).last


def _number(value: float, digits: int = 3) -> str:
    """Three digits, and no exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.{digits}g}"


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-", "−").replace("−0.00", "0.00")


def _points(line: Line) -> str:
    """The mean difference, its interval, and a star where it is inferior."""
    found = line.compared
    if found is None:
        return ""
    ends = found.difference
    if not math.isfinite(ends.low):  # one pair, and no others that tell of the spread
        return _signed(ends.mean)
    star = "*" if found.verdict == "inferior" else ""
    return f"{_signed(ends.mean)} [{_signed(ends.low)}, {_signed(ends.high)}]{star}"


def _by_seed(line: Line) -> str:
    return ", ".join(f"{run.last.accuracy:.2f}" for run in line.row.ended)


def _without_codec(line: Line) -> str:
    scores = [run.evaluations["none"] for run in line.row.ended if "none" in run.evaluations]
    return f"{sum(scores) / len(scores):.2f}" if scores else ""


def _error(line: Line) -> str:
    points = mean(line.row.ended).points
    return _number(sum(point.error for point in points) / len(points), 2)


def _sent(sent: float, raw: float) -> str:
    less = f" ({_number(raw / sent)} times less)" if raw / sent > 1.01 else ""
    return f"{_number(sent / 1e9)} GB{less}"


COLUMNS: dict[str, Callable[[Line], str]] = {
    "what is compressed": lambda line: _WHAT[line.policy],
    "feature maps sent": lambda line: _sent(line.last.smashed, line.last.raw),
    "all traffic": lambda line: _sent(line.last.total, line.last.raw_total),
    "scale": lambda line: line.scale.removesuffix(_FIRST),
    "gradient of ties": lambda line: "to the first" if line.scale.endswith(_FIRST) else "shared",
    "cut": lambda line: line.row.first.cut,
    "policy": lambda line: line.policy,
    "smashed data, times less": lambda line: _number(line.last.raw / line.last.smashed),
    "all traffic, times less": lambda line: _number(line.last.raw_total / line.last.total),
    "GB in all": lambda line: _number(line.last.total / 1e9),
    "seeds": lambda line: ", ".join(str(seed) for run in line.row.ended for seed in run.seeds),
    "pairs": lambda line: "" if line.compared is None else str(line.compared.pairs),
    "accuracy, %": lambda line: f"{line.last.accuracy:.2f}",
    "seed by seed": _by_seed,
    "points to none, 95 % interval": _points,
    "tested without codec, %": _without_codec,
    "relative squared error": _error,
}

_SENT = ("smashed data, times less", "all traffic, times less")
_POINTS = "points to none, 95 % interval"
_WEIGHTS = ("tested without codec, %", "relative squared error")
_CIFAR = "airbench-bf16-cifar10"
_ANSWER = ("scale", "policy", *_SENT, "pairs", _POINTS)
_TO_THE_END = ("cut", "policy", *_SENT, "seeds", "accuracy, %", "seed by seed", _POINTS, *_WEIGHTS)


@dataclass(frozen=True)
class Wanted:
    """Which runs a table has, and what of them."""

    scale: str
    columns: Sequence[str]
    tasks: Sequence[str] = (_CIFAR,)
    cuts: Sequence[str] = ("shallow", "medium", "deep")
    policies: Sequence[str] = ()
    """In the table's order; all if empty."""


#: The parts of each table, one below the other.
TABLES: dict[str, list[Wanted]] = {
    "answer": [
        Wanted(scale, _ANSWER, cuts=("medium",), policies=(f"{_HUNDREDTH}, committed", _BEST))
        for scale in ("testbed", "proxy")
    ],
    "headline": [
        Wanted(
            "testbed",
            ("what is compressed", "feature maps sent", "all traffic", "accuracy, %", _POINTS, "pairs"),
            cuts=("medium",),
            policies=tuple(_WHAT),
        )
    ],
    "testbed": [Wanted("testbed", _TO_THE_END)],
    "testbed-width-48": [Wanted("testbed-width-48", _TO_THE_END)],
    "proxy-medium": [
        Wanted(
            "proxy",
            ("policy", *_SENT, "accuracy, %", "seed by seed", _POINTS, "tested without codec, %"),
            cuts=("medium",),
            policies=("none", _HUNDREDTH, f"{_HUNDREDTH}, committed", _ALL, _BEST, *_PULLED),
        )
    ],
    "proxy-cuts": [
        Wanted(
            "proxy",
            ("cut", "policy", *_SENT, "accuracy, %", "pairs", _POINTS),
            cuts=("shallow", "deep"),
        )
    ],
    "ties": [
        Wanted(
            f"{scale}{ties}",
            ("scale", "gradient of ties", "policy", "pairs", "accuracy, %", _POINTS, *_WEIGHTS),
            cuts=("deep",),
            policies=("none", _NEAREST, f"{_HUNDREDTH}, committed", _BEST),
        )
        for scale in ("proxy", "testbed")
        for ties in (_FIRST, "")
    ],
    "proxy-dirichlet": [
        Wanted(
            "proxy",
            ("policy", *_SENT, "accuracy, %", "seed by seed", _POINTS),
            tasks=(f"{_CIFAR}-dirichlet-alpha-0.3",),
        )
    ],
    "proxy-tiny-imagenet-50": [
        Wanted(
            "proxy",
            ("policy", *_SENT, "accuracy, %", "pairs", _POINTS),
            tasks=("airbench-bf16-tiny-imagenet-50",),
        )
    ],
    "proxy-rates": [
        Wanted(
            "proxy",
            ("policy", "smashed data, times less", "pairs", _POINTS, "accuracy, %", *_WEIGHTS),
            cuts=("medium",),
            policies=(
                *("EMS(2.0)", "EMS(1)", "EMS(1), committed", "EMS(1), constant pull"),
                *("EMS(0.5)", "EMS(0.5), committed", "EMS(0.5), constant pull"),
                *(_HUNDREDTH, f"{_HUNDREDTH}, committed", _PULLED[0], "EMS(0.2)", "EMS(0.1)"),
                *("QU(3)", _NEAREST, "SP(0.95875)", "SP, entropy-coded", "UQ(1)", "UQ(0.32)"),
                *("FedLite", "FedLite, corrected", "FedLite, shorter subvectors"),
                *("FedLite, corrected, constant pull", "SplitFC", "SplitFC, half of the features", "SL-ACC"),
                *("C3-SL", "C3-SL, two samples", "AQ-SGD, QU(3)", "AQ-SGD, EMS(0.32)", "SplitCom"),
            ),
        )
    ],
    "proxy-down-and-averaging": [
        Wanted(
            "proxy",
            ("policy", "GB in all", "pairs", "accuracy, %", _POINTS),
            cuts=("medium",),
            policies=(
                *("none", "averages EMS(1)", "top 1 % averaged", "down EMS(1)", "down EMS(1), unbiased"),
                *("down step 3, unbiased", "down and averages EMS(1)"),
                *("none, averaged each 20 steps", "none, averaged each epoch"),
                "weights EMS(2), averaged each 20 steps, as differences",
                "weights EMS(2), averaged each epoch, as differences",
            ),
        )
    ],
}


def table(name: str) -> str:
    """The table in Markdown."""
    parts = TABLES[name]
    columns = parts[0].columns
    cells = [[COLUMNS[column](line) for column in columns] for part in parts for line in _lines(part)]
    head = [list(columns), ["---"] * len(columns)]
    return "".join(f"| {' | '.join(row)} |\n" for row in (*head, *cells))


def _lines(wanted: Wanted) -> list[Line]:
    groups = rows(read_curves(RESULTS / wanted.scale))
    spread = spreads(groups)
    found = [
        Line(wanted.scale, row, row.compare(spread[task]))
        for (task, cut), of_place in groups.items()
        for row in of_place
        if task in wanted.tasks and cut in wanted.cuts and row.ended
    ]
    if not wanted.policies:
        return found
    order = wanted.policies
    return sorted((line for line in found if line.policy in order), key=lambda line: order.index(line.policy))


def rewritten(text: str) -> str:
    """A page with its tables as the records have them."""
    return _PLACE.sub(lambda place: place[1] + place[2] + table(place[1]), text)


def picture() -> str:
    """Accuracy against all traffic of the runs that were trained to the end, epoch by epoch; the SVG."""
    named = {"none": "nothing compressed", _BEST: "everything compressed"}
    series = []
    for line in _lines(TABLES["headline"][0]):
        row = line.row
        if line.policy not in named:
            continue
        points = mean(row.ended).points
        scores = [[run.points[epoch].accuracy for run in row.ended] for epoch in range(len(points))]
        gigabytes, accuracies = ([p.total / 1e9 for p in points], [p.accuracy for p in points])
        ends = (list(map(end, scores)) for end in (min, max))
        series.append(Series(named[line.policy], gigabytes, accuracies, *ends))
    axes = Axis("all traffic so far, GB", True), Axis("test accuracy, %")
    title = "Fourteen epochs of CIFAR-10, ten clients"
    return draw([Plot("testbed", title, "line", *axes, series)], alone=True)


def files() -> dict[Path, str]:
    """What this module writes."""
    return {page: rewritten(page.read_text("utf-8")) for page in PAGES} | {PICTURE: picture()}


if __name__ == "__main__":
    for file, content in files().items():
        file.write_text(content, "utf-8")
