"""What the runs of `transformers` say: validation loss against bits, and how far from no compression."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from cutlayer.analysis.paired import PairedComparison, Verdict, differences, paired, pooled_spread
from cutlayer.reproduce.cell_records import Record
from cutlayer.reproduce.experiment import Records, Request
from cutlayer.reproduce.results import Axis, Claim, Findings, Holds, Plot, Series, Table

MARGIN = 0.01
"""Nats that count as no loss. Stated before the runs."""
_FEW = 3
"""Fewer pairs say nothing on their own."""
_HOLDS: dict[Verdict, Holds] = {"non-inferior": True, "inferior": False, "undecided": "undecided"}
_COLUMNS = (
    *("model", "cut", "codec", "bits", "seeds", "validation loss", "lowest", "highest"),
    *("to none", "low", "high", "verdict", "error", "metric", "its value", "steps", "MB up", "MB in all"),
)
"""Bits an element of smashed data, headers included; nats a token or an image; nats to no compression with
the same seeds, and the 95 % interval; relative squared error; mean of the task's main metric; smashed data
and all traffic of one run."""


@dataclass(frozen=True)
class Row:
    """The runs of one model, cut and codec: seed to record."""

    model: str
    cut: str
    label: str
    runs: Mapping[int, Record]

    @property
    def losses(self) -> dict[int, float]:
        """Validation losses by seed."""
        return {seed: float(run["loss"]) for seed, run in self.runs.items()}

    @property
    def scores(self) -> dict[int, float]:
        """The same with the better one larger, as comparisons have it."""
        return {seed: -loss for seed, loss in self.losses.items()}

    @property
    def bits(self) -> float:
        """Bits an element of smashed data."""
        return fmean(run["bits"] for run in self.runs.values())


def conclude(request: Request, records: Records) -> Findings:
    """See `Experiment`."""
    rows = _rows({key: record for key, record in records.items() if key.count("/") == 3})
    controls = {(row.model, row.cut): row for row in rows if row.label == "none"}
    compared = _compare(rows, controls)
    table = Table(
        "losses",
        f"Validation loss after the last step. To none: same seeds; non-inferior if all of the interval is "
        f"less than {MARGIN} nats",
        _COLUMNS,
        [_told(row, compared.get((row.model, row.cut, row.label))) for row in rows],
    )
    return Findings(
        "Transformers under compression, beyond the paper",
        _claims(rows, compared) + _claims_over_cuts(rows, controls),
        [table, _tested(records)],
        [_plot(model, cut, rows) for model, cut in controls],
    )


Compared = dict[tuple[str, str, str], PairedComparison]


def _rows(records: Records) -> list[Row]:
    found: dict[tuple[str, str, str], dict[int, Record]] = {}
    for key, record in records.items():
        model, cut, label, seed = key.split("/")
        found.setdefault((model, cut, label), {})[int(seed)] = record
    rows = [Row(*place, runs) for place, runs in found.items()]
    # Models and cuts in order; within them by rate, none first.
    return sorted(rows, key=lambda row: (row.model, row.cut, -row.bits))


def _compare(rows: Sequence[Row], controls: Mapping[tuple[str, str], Row]) -> Compared:
    others = [row for row in rows if row.label != "none" and (row.model, row.cut) in controls]
    compared: Compared = {}
    for model in dict.fromkeys(row.model for row in others):
        of_model = [(row, controls[row.model, row.cut]) for row in others if row.model == model]
        # Pairs of a row scatter around its mean; rows with fewer than three pairs borrow that spread.
        spread = pooled_spread(differences(row.scores, control.scores) for row, control in of_model)
        for row, control in of_model:
            compared[row.model, row.cut, row.label] = paired(
                row.scores, control.scores, MARGIN, spread=spread
            )
    return compared


def _told(row: Row, found: PairedComparison | None) -> list[object]:
    losses, runs = row.losses.values(), list(row.runs.values())
    start: list[object] = [row.model, row.cut, row.label, row.bits, len(runs)]
    start += [fmean(losses), min(losses), max(losses)]
    # Scores have the opposite sign of losses.
    ends: list[float | None] = [None] * 3
    if found is not None:
        ends = [-found.difference.mean, -found.difference.high, -found.difference.low]
    metric = next(iter(runs[0]["metrics"]))
    return [
        *start,
        *ends,
        None if found is None else found.verdict,
        fmean(run["error"] for run in runs),
        metric,
        fmean(run["metrics"][metric] for run in runs),
        runs[0]["steps"],
        fmean(run["bytes"]["up/smashed"] for run in runs) / 1e6,
        fmean(run["bytes"]["up"] + run["bytes"]["down"] for run in runs) / 1e6,
    ]


def _tested(records: Records) -> Table:
    """The weights of runs without compression, tested with a codec at the cut: means over seeds."""
    found: dict[tuple[str, str, str], list[tuple[float, float, float]]] = {}
    for key, record in records.items():
        if key.count("/") == 4:
            run, _, label = key.rpartition("/")
            model, cut, _, _ = run.split("/")
            change = record["loss"] - records[run]["loss"]
            found.setdefault((model, cut, label), []).append((record["bits"], record["loss"], change))
    rows = []
    for place, values in sorted(found.items()):
        bits, losses, changes = zip(*values, strict=True)
        rows.append(
            [*place, fmean(bits), len(values), fmean(losses), fmean(changes), min(changes), max(changes)]
        )
    return Table(
        "tested",
        "Weights that were trained without compression, with a codec at the cut when they are tested",
        ("model", "cut", "codec", "bits", "seeds", "validation loss", "to none", "lowest", "highest"),
        rows,
    )


def _claims(rows: Sequence[Row], compared: Compared) -> list[Claim]:
    claims = []
    for row in rows:
        found = compared.get((row.model, row.cut, row.label))
        if found is None or not row.label.startswith("EMS") or row.bits > 2:
            continue
        claims.append(
            Claim(
                f"{row.label} is within {MARGIN} nats of no compression: {row.model}, behind {row.cut}",
                _HOLDS[found.verdict],
                f"{_evidence(found)} at {row.bits:.2f} bits.",
            )
        )
    return claims


def _claims_over_cuts(rows: Sequence[Row], controls: Mapping[tuple[str, str], Row]) -> list[Claim]:
    """One verdict on a model that was cut at several places: a pair is a cut and a seed.

    Pairs of a model scatter by the chaos of training, wherever it is cut. Stated before the runs behind the
    second block with seeds above 0.
    """
    claims = []
    for model, label in dict.fromkeys((row.model, row.label) for row in rows if row.label != "none"):
        same = [row for row in rows if (row.model, row.label) == (model, label)]
        same = [row for row in same if (model, row.cut) in controls]
        bits = max((row.bits for row in same), default=math.inf)
        if len(same) < 2 or not label.startswith("EMS") or bits > 2:
            continue
        ours = {(row.cut, seed): score for row in same for seed, score in row.scores.items()}
        none = {
            (row.cut, seed): score for row in same for seed, score in controls[model, row.cut].scores.items()
        }
        found = paired(ours, none, MARGIN)
        if found.pairs < _FEW:
            continue
        claims.append(
            Claim(
                f"{label} is within {MARGIN} nats of no compression: {model}, both cuts together",
                _HOLDS[found.verdict],
                f"{_evidence(found)} at {bits:.2f} bits or less.",
            )
        )
    return claims


def _evidence(found: PairedComparison) -> str:
    ends = found.difference
    if not math.isfinite(ends.low):
        return f"{-ends.mean:+.4f} nats, one seed and so without an interval,"
    pairs = f"{found.pairs} pair{'s' if found.pairs > 1 else ''}"
    borrowed = " with the spread of the other rows" if found.pooled else ""
    return f"{-ends.mean:+.4f} nats [{-ends.high:+.4f}, {-ends.low:+.4f}], {pairs}{borrowed},"


def _plot(model: str, cut: str, rows: Sequence[Row]) -> Plot:
    families: dict[str, list[Row]] = {}
    for row in rows:
        if (row.model, row.cut) == (model, cut):
            families.setdefault(row.label.partition("(")[0], []).append(row)
    series = []
    for family, of_family in families.items():
        ordered = sorted(of_family, key=lambda row: row.bits)
        losses = [list(row.losses.values()) for row in ordered]
        series.append(
            Series(
                family,
                [row.bits for row in ordered],
                [fmean(found) for found in losses],
                [min(found) for found in losses],
                [max(found) for found in losses],
            )
        )
    return Plot(
        f"loss-{model}-{cut}",
        f"Validation loss against bits, {model}, behind {cut}",
        "line",
        Axis("bits an element of smashed data", log=True),
        Axis("validation loss, nats"),
        series,
    )
