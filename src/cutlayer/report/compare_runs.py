"""Compare runs: accuracy, loss and traffic as tables and plots, in the form of a `Result`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cutlayer.errors import FileError
from cutlayer.report.rate_plots import rate_plots
from cutlayer.report.run_summary import Summary, summarize
from cutlayer.reproduce.results import Axis, Plot, Result, Series, Table
from cutlayer.training.load_run import settings
from cutlayer.training.records import read

_COLUMNS = (
    *("run", "codec up", "mode", "clients", "epochs", "accuracy %", "best %", "relative squared error"),
    *(
        "smashed data up, MB",
        "smaller than float32",
        "all traffic, MB",
        "uncompressed, MB",
    ),
)
_LINK_COLUMN = "hours on the link"


def compare_runs(directories: Sequence[Path]) -> Result:
    """One result for all of these runs. A run that is still training is shown up to its last step."""
    names = _names(directories)
    rows, epochs, causes, rates = [], {}, [], []
    linked: set[str] = set()
    for directory in directories:
        name = names[directory]
        run = summarize(directory)
        hours = None if run.simulated_seconds is None else run.simulated_seconds / 3600
        if hours is not None:
            linked.add(name)
        rows.append(
            [
                *(name, _codecs(run), run.mode, run.clients, run.epochs),
                *(100 * run.accuracy, 100 * run.best_accuracy, run.error),
                *(run.bytes.get("up/smashed", 0) / 1e6, run.saving),
                *(run.total / 1e6, run.uncompressed / 1e6, hours),
            ]
        )
        records = list(read(directory / "records.jsonl"))
        epochs[name] = [r for r in records if r.get("kind") == "epoch"]
        rates += rate_plots(name, records)
        causes.append(_provenance(directory))
    columns: tuple[str, ...] = (*_COLUMNS, _LINK_COLUMN)
    if not linked:
        columns, rows = _COLUMNS, [row[:-1] for row in rows]
    traffic = Table("traffic", "Bytes by kind", *_by_kind(directories, names))
    return Result(
        name="runs",
        scale="as configured",
        title="Runs" if len(rows) > 1 else f"Run {rows[0][0]}",
        tables=[Table("runs", "Accuracy against bytes", columns, rows), traffic],
        plots=[*_plots(epochs, linked), *rates],
        commands=list(dict.fromkeys(str(cause["command"]) for cause in causes if cause.get("command"))),
        provenance=causes[0],
        settings={names[d]: json.loads(settings(d).to_json()) | {"output": None} for d in directories},
    )


def _plots(epochs: dict[str, list[dict[str, Any]]], linked: set[str]) -> list[Plot]:
    """`linked` are the runs that had a link; of the others, simulated seconds are work alone."""
    percent = Axis("test accuracy, %")
    timed = (record for name in linked for record in epochs[name])
    longest = max((record.get("simulated_seconds") or 0 for record in timed), default=0)
    unit, seconds = (
        ("hours", 3600) if longest >= 7200 else ("minutes", 60) if longest >= 120 else ("seconds", 1)
    )
    by_bytes, by_traffic, by_epoch, by_time, loss = [], [], [], [], []
    for name, records in epochs.items():
        scored = [record for record in records if record.get("accuracy") is not None]
        sums = _cumulative(records, "up/smashed")
        accuracy = [100 * record["accuracy"] for record in scored]
        by_bytes.append(Series(name, [sums[record["epoch"]] / 1e6 for record in scored], accuracy))
        up, down = _cumulative(records, "up"), _cumulative(records, "down")
        by_traffic.append(Series(name, [(up[r["epoch"]] + down[r["epoch"]]) / 1e6 for r in scored], accuracy))
        by_epoch.append(Series(name, [record["epoch"] for record in scored], accuracy))
        if name in linked and all(record.get("simulated_seconds") for record in scored):
            by_time.append(Series(name, [r["simulated_seconds"] / seconds for r in scored], accuracy))
        loss.append(Series(name, [r["epoch"] for r in records], [r["train_loss"] for r in records]))
    plots = [
        Plot("bytes", "Accuracy against bytes", "line", Axis("smashed data up, MB", True), percent, by_bytes),
        Plot(
            "traffic",
            "Accuracy against all traffic",
            "line",
            Axis("all traffic, MB", True),
            percent,
            by_traffic,
        ),
        Plot("accuracy", "Test accuracy", "line", Axis("epoch"), percent, by_epoch),
        Plot("loss", "Training loss", "line", Axis("epoch"), Axis("training loss"), loss),
        Plot("time", "Accuracy against time", "line", Axis(f"{unit} on the link"), percent, by_time),
    ]
    return [plot for plot in plots if any(series.x for series in plot.series)]


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
