"""`cutlayer compare`: metrics against bytes, run by run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutlayer.commands import show
from cutlayer.commands.options import AsJson
from cutlayer.imports import need

if TYPE_CHECKING:
    from rich.table import Table

    from cutlayer.report.run_summary import Summary
    from cutlayer.tasks import Metric


#: Kinds of tensors, up and down together, and the names of their columns.
_KINDS = {"smashed": "smashed", "gradients": "gradients", "sync": "shared"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("compare")(compare)


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="directories of runs, or folders of these", metavar="RUN")
    ],
    as_json: AsJson = False,
) -> None:
    """Compare the metrics and the traffic of runs.

    Runs that are still going are shown as far as they are. A folder of runs
    stands for all of them.

    \b
    Examples:
      cutlayer compare runs/digits-dense runs/digits-sp runs/digits-ms
      cutlayer compare runs --json
    """
    need("pydantic", "reading a run")
    from cutlayer.report.find_results import find_runs
    from cutlayer.report.run_summary import summarize

    found = [summarize(run) for run in find_runs(runs)]
    if as_json:
        show.print_json([summary.to_json() for summary in found])
        return
    tasks = dict.fromkeys(_metric_names(run) for run in found)
    for task in tasks:
        for table in comparison([run for run in found if _metric_names(run) == task]):
            show.console().print(table)


def _metric_names(run: Summary) -> tuple[str, ...]:
    """The names of a run's metrics. Runs that have others stand in a table of their own."""
    return tuple(metric.name for metric in run.shown if not metric.minor)


def comparison(runs: list[Summary]) -> list[Table]:
    """Metrics against bytes by kind, of runs that have the same metrics.

    The error is that of the smashed data under the codec. How many times smaller all traffic is compares with
    tensors as plain float32. On a terminal that is too narrow for one table, the codecs are a table of their
    own.
    """
    timed = any(run.simulated_seconds is not None for run in runs)
    other = any((run.down_codec, run.sync_codec) != ("none", "none") for run in runs)
    rates = any(run.rate != "fixed" for run in runs)
    columns = ["run", "codec up", *(["rate"] if rates else []), *(["down", "sync"] if other else [])]
    words = len(columns)
    metrics = list(dict.fromkeys(metric for run in runs for metric in run.shown if not metric.minor))
    kinds = [kind for kind in _KINDS if any(_sent(run, kind) for run in runs)]
    columns += ["epochs", *(metric.name.replace("_", " ") for metric in metrics), "best", "error"]
    columns += [*(_KINDS[kind] for kind in kinds), "all traffic", "smaller"]
    columns += ["time on link"] if timed else []
    rows = []
    for run in runs:
        row = [run.run, run.codec, *([run.rate] if rates else [])]
        row += [run.down_codec, run.sync_codec] if other else []
        row += [str(run.epochs), *(_value(metric, run.metrics.get(metric.name)) for metric in metrics)]
        row += [_value(run.metric, run.best), _number(run.error, ".4f")]
        row += [show.size(_sent(run, kind)) for kind in kinds]
        row += [
            show.size(run.total),
            _number(run.uncompressed / run.total if run.total else math.nan, ".2f", "x"),
        ]
        if timed:
            row.append("-" if run.simulated_seconds is None else show.duration(run.simulated_seconds))
        rows.append(row)
    title = runs[0].metric.name.replace("_", " ") if runs else "metrics"
    title = title.upper() if len(title) <= 3 else title[0].upper() + title[1:]
    title = f"{title} against bytes"
    if not show.too_wide(columns, rows):
        return [show.table(title, columns, rows, text=words)]
    figures = [[row[0], *row[words:]] for row in rows]
    return [
        show.table("Codecs", columns[:words], [row[:words] for row in rows], text=words),
        show.table(title, ["run", *columns[words:]], figures),
    ]


def traffic_table(run: Summary) -> Table:
    """What one run sent, beside what it would have sent uncompressed."""
    rows = []
    for direction in ("up", "down"):
        kinds = [key for key, sent in run.bytes.items() if key.startswith(f"{direction}/") and sent]
        for key in kinds:
            sent = run.bytes[key]
            # Runs of earlier versions did not count what averaging would have cost.
            unknown = key.endswith("/sync") and run.sync_codec != "none" and key not in run.raw_bytes
            raw = run.raw_bytes.get(key, sent)
            rows.append([key.replace("/", ": "), *_compared(sent, None if unknown else raw)])
    rows.append(["all", *_compared(run.total, run.uncompressed)])
    said = [
        f"{metric.name.replace('_', ' ')} {_value(metric, run.metrics[metric.name])}"
        for metric in run.shown
        if not metric.minor
    ]
    said.insert(1, f"best {_value(run.metric, run.best)}")
    title = f"{run.epochs} epoch{'s' * (run.epochs != 1)}: {', '.join(said)}"
    if run.simulated_seconds is not None:
        title += f", {show.duration(run.simulated_seconds)} on the given link"
    return show.table(title, ["traffic", "sent", "uncompressed", "ratio"], rows)


def _sent(run: Summary, kind: str) -> int:
    return run.bytes.get(f"up/{kind}", 0) + run.bytes.get(f"down/{kind}", 0)


def _compared(sent: int, raw: int | None) -> list[str]:
    if raw is None:
        return [show.size(sent), "-", "-"]
    return [show.size(sent), show.size(raw), f"{raw / sent:.2f}x" if sent else "-"]


def _value(metric: Metric, value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else metric.text(value)


def _number(value: float, form: str, unit: str = "") -> str:
    return "-" if math.isnan(value) else f"{value:{form}}{unit}"
