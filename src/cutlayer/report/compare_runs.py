"""Compare runs: metrics, loss and traffic as tables and plots, in the form of a `Result`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cutlayer.errors import FileError
from cutlayer.report.rate_plots import rate_plots
from cutlayer.report.run_summary import Summary, summarize
from cutlayer.reproduce.results import Axis, Plot, Result, Series, Table
from cutlayer.tasks.metric import Metric
from cutlayer.training.load_run import settings
from cutlayer.training.records import read

# What matters most stands first: a narrow window cuts the rest off.
_TRAFFIC = ("all traffic, MB", "times smaller than float32", "smashed data up, MB", "times smaller")
_ABOUT = ("relative squared error", "epochs", "clients", "mode")
_LINK_COLUMN = "hours on the link"


def compare_runs(directories: Sequence[Path]) -> Result:
    """One result for all of these runs. A run that is still training is shown up to its last step."""
    names = _names(directories)
    rows, epochs, causes, rates = [], {}, [], []
    linked: set[str] = set()
    runs = {directory: summarize(directory) for directory in directories}
    metrics = list(dict.fromkeys(m for run in runs.values() for m in run.shown if not m.minor))
    mains = list(dict.fromkeys(run.metric for run in runs.values()))
    for directory, run in runs.items():
        name = names[directory]
        hours = None if run.simulated_seconds is None else run.simulated_seconds / 3600
        bests = [_scaled(main, run.best) if main == run.metric else None for main in mains]
        if hours is not None:
            linked.add(name)
        rows.append(
            [
                *(name, _codecs(run)),
                *(_scaled(metric, run.metrics.get(metric.name)) for metric in metrics),
                *(*bests, run.total / 1e6, run.uncompressed / run.total if run.total else None),
                *(run.bytes.get("up/smashed", 0) / 1e6, run.saving),
                *(run.error, run.epochs, run.clients, run.mode, hours),
            ]
        )
        records = list(read(directory / "records.jsonl"))
        epochs[name] = [r for r in records if r.get("kind") == "epoch"]
        rates += rate_plots(name, records)
        causes.append(_provenance(directory))
    traffic = Table("traffic", "Bytes by kind", *_by_kind(directories, names))
    what = _title(mains[0].name) if len(mains) == 1 else "Metrics"
    scores = (*map(_column, metrics), *(f"best {_column(main)}" for main in mains))
    columns = ("run", "codecs", *scores, *_TRAFFIC, *_ABOUT)
    if linked:
        columns = (*columns, _LINK_COLUMN)
    else:
        rows = [row[:-1] for row in rows]
    if len(mains) == 1:
        columns = tuple("best %" if c == "best accuracy %" else c for c in columns)
    return Result(
        name="runs",
        scale="",
        title="Runs" if len(rows) > 1 else f"Run {rows[0][0]}",
        tables=[Table("runs", f"{what} against bytes", columns, rows), traffic],
        plots=[*_plots(epochs, {names[d]: run.shown for d, run in runs.items()}, linked), *rates],
        commands=list(dict.fromkeys(str(cause["command"]) for cause in causes if cause.get("command"))),
        provenance=causes[0],
        settings={names[d]: json.loads(settings(d).to_json()) | {"output": None} for d in directories},
    )


def _plots(
    epochs: dict[str, list[dict[str, Any]]], shown: dict[str, tuple[Metric, ...]], linked: set[str]
) -> list[Plot]:
    """`linked` are the runs that had a link; of the others, simulated seconds are work alone."""
    timed = (record for name in linked for record in epochs[name])
    longest = max((record.get("simulated_seconds") or 0 for record in timed), default=0)
    unit, seconds = (
        ("hours", 3600) if longest >= 7200 else ("minutes", 60) if longest >= 120 else ("seconds", 1)
    )
    plots = []
    mains = list(dict.fromkeys(metrics[0] for metrics in shown.values()))
    for main in mains:
        names = [name for name in epochs if shown[name][0] == main]
        # Runs of several tasks have a plot of each kind for each main metric.
        suffix = "" if main == mains[0] else f"-{main.name}"
        by_bytes, by_traffic, by_epoch, by_time = [], [], [], []
        for name in names:
            scored = [record for record in epochs[name] if record.get(main.name) is not None]
            sums = _cumulative(epochs[name], "up/smashed")
            values = [_scaled(main, record[main.name]) for record in scored]
            by_bytes.append(Series(name, [sums[record["epoch"]] / 1e6 for record in scored], values))
            up, down = _cumulative(epochs[name], "up"), _cumulative(epochs[name], "down")
            traffic = [(up[record["epoch"]] + down[record["epoch"]]) / 1e6 for record in scored]
            by_traffic.append(Series(name, traffic, values))
            by_epoch.append(Series(name, [record["epoch"] for record in scored], values))
            if name in linked and all(record.get("simulated_seconds") for record in scored):
                by_time.append(Series(name, [r["simulated_seconds"] / seconds for r in scored], values))
        axis, title = Axis(f"test {_column(main, ', ')}"), _title(main.name)
        x = Axis("smashed data up, MB", True)
        plots += [
            Plot(f"bytes{suffix}", f"{title} against smashed data", "line", x, axis, by_bytes),
            Plot(
                f"traffic{suffix}",
                f"{title} against all traffic",
                "line",
                Axis("all traffic, MB", True),
                axis,
                by_traffic,
            ),
            Plot(main.name, f"Test {_words(main.name)}", "line", Axis("epoch"), axis, by_epoch),
            Plot(
                f"time{suffix}", f"{title} against time", "line", Axis(f"{unit} on the link"), axis, by_time
            ),
        ]
    loss = [Series(n, [r["epoch"] for r in rs], [r["train_loss"] for r in rs]) for n, rs in epochs.items()]
    plots.insert(3, Plot("loss", "Training loss", "line", Axis("epoch"), Axis("training loss"), loss))
    plots += _further(epochs, shown)
    return [plot for plot in plots if any(series.x for series in plot.series)]


def _further(epochs: dict[str, list[dict[str, Any]]], shown: dict[str, tuple[Metric, ...]]) -> list[Plot]:
    """A plot for each metric that is not the main one of any run."""
    mains = {metrics[0] for metrics in shown.values()}
    others = dict.fromkeys(m for metrics in shown.values() for m in metrics if m not in mains and not m.minor)
    plots = []
    for metric in others:
        series = []
        for name, records in epochs.items():
            scored = [record for record in records if record.get(metric.name) is not None]
            values = [_scaled(metric, record[metric.name]) for record in scored]
            series.append(Series(name, [record["epoch"] for record in scored], values))
        title = f"Test {_words(metric.name)}"
        axis = Axis(f"test {_column(metric, ', ')}")
        plots.append(Plot(metric.name, title, "line", Axis("epoch"), axis, series))
    return plots


def _scaled(metric: Metric, value: float | None) -> float | None:
    return value if value is None or not metric.percent else 100 * value


def _column(metric: Metric, before: str = " ") -> str:
    return f"{metric.name.replace('_', ' ')}{before + '%' if metric.percent else ''}"


def _words(name: str) -> str:
    """A metric's name in a sentence: `mean iou`, MSE."""
    return name.upper() if len(name) <= 3 else name.replace("_", " ")


def _title(name: str) -> str:
    return _words(name)[0].upper() + _words(name)[1:]


def _by_kind(directories: Sequence[Path], names: dict[Path, str]) -> tuple[list[str], list[list[Any]]]:
    totals = {names[directory]: summarize(directory).bytes for directory in directories}
    kinds = dict.fromkeys(key for sent in totals.values() for key in sent if "/" in key)
    used = [key for key in kinds if any(sent.get(key) for sent in totals.values())]
    rows = [[name, *(sent.get(key, 0) for key in used)] for name, sent in totals.items()]
    return ["run", *(key.replace("/", ": ") for key in used)], rows


def _codecs(run: Summary) -> str:
    """The codec of smashed data, and those of gradients and of what is averaged, where there are any."""
    others = (("down", run.down_codec), ("sync", run.sync_codec))
    return "; ".join([run.codec, *(f"{name} {codec}" for name, codec in others if codec != "none")])


def _cumulative(records: Sequence[dict[str, Any]], kind: str) -> dict[int, int]:
    total, sums = 0, {}
    for record in records:
        total += record["bytes"].get(kind, 0)
        sums[record["epoch"]] = total
    return sums


def _names(directories: Sequence[Path]) -> dict[Path, str]:
    """The names of the directories, with as many parent folders as it takes to make them differ."""
    for depth in range(1, 1 + max(len(directory.resolve().parts) for directory in directories)):
        names = {d: "/".join(d.resolve().parts[-depth:]) for d in directories}
        if len(set(names.values())) == len(directories):
            break
    return names


def _provenance(directory: Path) -> dict[str, Any]:
    path = directory / "provenance.json"
    if not path.exists():
        return {}
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: is damaged ({error})") from error
