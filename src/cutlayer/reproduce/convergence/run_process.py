"""Train one run of the grid, in this process or as a process of its own, and tidy its directory.

`python -m cutlayer.reproduce.convergence.run_process DIR THREADS ARGV` is what the pool starts. It prints the
records of the run as JSON lines, from which the pool shows progress.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from cutlayer.config.schema import Config, load
from cutlayer.errors import ConfigError, CutlayerError, DivergedError
from cutlayer.files import write_atomically
from cutlayer.plain_json import to_json
from cutlayer.reproduce.convergence.cross_evaluation import keep_weights
from cutlayer.reproduce.convergence.grid import CURVE_POINTS
from cutlayer.tasks import Metric
from cutlayer.training import records
from cutlayer.training.progress import Display, JsonLines
from cutlayer.training.train import train

#: Holds the step and the reason, if training met NaN or infinity: that is a result, too.
DIVERGED = "diverged.json"
STOPPED = 130


def train_run(config: Config, shown: Display | None = None) -> None:
    """Train a run; resume it if it was begun before."""
    directory = Path(config.output.dir)
    try:
        train(config, progress=shown, resume=True)
    except DivergedError as error:
        about = {"step": error.step, "why": str(error).partition(". ")[0]}
        write_atomically(directory / DIVERGED, json.dumps(about) + "\n")
    tidy(directory, config)


def prepare(config: Config) -> bool:
    """Make a run ready to train. If it is finished, only tidy its directory, and return False.

    A directory that holds a run with other settings is refused: its results would pass for this one's. A
    finished run with the same settings in a directory of another name beside it is this run.
    """
    directory = Path(config.output.dir)
    path = directory / "config.toml"
    if path.exists():
        before, now = load(path), config
        if before.identity() != now.identity():
            changed = ", ".join(_changed(before.identity(), now.identity()))
            raise ConfigError(
                f"{directory}: holds a run with other settings ({changed}). Give another --out, or remove it"
            )
        if is_finished(directory, config.train.epochs):
            # What is tidy already may be under version control, and is left as it is.
            if before.output.dir != directory.name or (directory / "checkpoints").exists():
                tidy(directory, config)
            return False
    elif any(_is_same(other.parent, config) for other in directory.parent.glob("*/config.toml")):
        return False
    write_atomically(path, config.to_toml(), parents=True)
    return True


def _is_same(directory: Path, config: Config) -> bool:
    return is_finished(directory, config.train.epochs) and (
        load(directory / "config.toml").identity() == config.identity()
    )


def is_finished(directory: Path, epochs: int) -> bool:
    """Whether all epochs of a run are in its records, or it has diverged."""
    if (directory / DIVERGED).exists():
        return True
    path = directory / "records.jsonl"
    if not path.exists():
        return False
    return any(r["kind"] == "epoch" and r["epoch"] == epochs for r in records.read(path))


def tidy(directory: Path, config: Config) -> None:
    """Keep final weights, epoch records, a thinned loss curve, and settings without paths of this machine.

    The rest is removed. A kill in between does no harm: the next start finds the run finished and tidies up
    again.
    """
    if (directory / "checkpoints").exists() and not (directory / DIVERGED).exists():
        keep_weights(directory)
    path = directory / "records.jsonl"
    thinned = [to_json(record) for record in _thin(list(records.read(path)))]
    write_atomically(path, "\n".join(thinned) + "\n")
    settings = config.model_dump()
    settings["data"]["root"] = "."
    settings["output"]["dir"] = directory.name
    write_atomically(directory / "config.toml", Config.model_validate(settings).to_toml())
    shutil.rmtree(directory / "checkpoints", ignore_errors=True)


def _thin(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Steps become points of a curve, each the mean over the steps since the point before."""
    steps = sum(record["kind"] == "step" for record in found)
    every = max(1, -(-steps // CURVE_POINTS))
    block: list[dict[str, Any]] = []
    for record in found:
        if record["kind"] != "step":
            if block:
                yield _point(block)
                block = []
            yield record
            continue
        block.append(record)
        if len(block) == every:
            yield _point(block)
            block = []
    if block:
        yield _point(block)


def _point(block: list[dict[str, Any]]) -> dict[str, Any]:
    last = block[-1]
    point = {"kind": "curve", "global_step": last["global_step"], "epoch": last["epoch"], "steps": len(block)}
    for name in ("loss", "error"):
        values = [record[name] for record in block if record[name] is not None]
        point[name] = round(sum(values) / len(values), 6) if values else None
    return point


def _changed(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    names = []
    for section, value in now.items():
        if before.get(section) == value:
            continue
        if not isinstance(value, dict):
            names.append(f"{section}: {before.get(section)!r}, not {value!r}")
            continue
        names += [
            f"{section}.{name}: {before[section].get(name)!r}, not {v!r}"
            for name, v in value.items()
            if before[section].get(name) != v
        ]
    return names


class RecordPrinter(JsonLines):
    """Prints the records. If the pool that reads them is gone, the run ends at its next step."""

    def begin(self, epochs: int, steps: int, done: int, metrics: Sequence[Metric] = ()) -> None:
        """Say how long the run is."""
        self._print({"kind": "begin", "epochs": epochs, "steps": steps, "done": done})

    def note(self, text: str) -> None:
        """Pass a warning on."""
        self._print({"kind": "note", "text": text})


def main() -> int:
    """The program that the pool starts."""
    directory, threads, argv = sys.argv[1:4]
    # What a person typed is the cause of this run, and goes into its provenance.
    sys.argv = json.loads(argv)
    torch.set_num_threads(int(threads))
    try:
        train_run(load(Path(directory, "config.toml")), RecordPrinter(sys.stdout))
    except CutlayerError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return STOPPED
    except BrokenPipeError:
        sys.stderr.close()
        return STOPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
