"""Time of a training step with the dashboard open, as a ratio to the same run without it.

    python benchmarks/dashboard.py           print the ratio
    python benchmarks/dashboard.py --save    and write it to benchmarks/results/dashboard.json

One run in this process writes its records. Blocks of steps with and without the dashboard are paired: both
are measured within seconds, and which of the two comes first alternates, so that a busy moment of the machine
or a slow drift hits both alike. With it: the thread that keeps the status of all clients, the process of the
dashboard, and so many pages that read its stream. Two ratios are told, with a 95 % interval of their mean:

- wall: seconds of a step. It contains everything, but only an idle machine tells it well.
- cpu: CPU seconds of the training process, all its threads included. Other work on the machine hardly moves
  it, but it does not see what the dashboard's own process takes from the training by using a core.

It ends after --seconds, whatever --rounds says. Nothing here passes or fails.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from cutlayer.config.schema import load
from cutlayer.dashboard.child_process import dashboard_process
from cutlayer.dashboard.http_server import Place
from cutlayer.training.local_run import LocalRun, local_run
from cutlayer.training.provenance import provenance
from cutlayer.training.records import RecordWriter
from cutlayer.training.status.run_status import RunStatus
from cutlayer.wire.grpc.membership import Membership

RESULTS = Path(__file__).parent / "results" / "dashboard.json"
TARGET = 1.02
# Steps that are not measured, after a page was opened or closed.
SETTLE = 5

# A page that reads and forgets, in a process of its own, as a browser is.
VIEWER = """
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1] + "api/stream") as stream:
    print("ready", flush=True)
    while stream.read1(65536):
        pass
"""


def make_run(arguments: argparse.Namespace) -> LocalRun:
    """A run that does not end by itself."""
    settings = [
        f"model.name={arguments.model}",
        f"model.width={arguments.width}",
        f"data.source={arguments.data}",
        f"data.root={arguments.root}",
        f"train.clients={arguments.clients}",
        "train.epochs=100000",
    ]
    return local_run(load(None, settings))


@contextmanager
def open_pages(folder: Path, clients: int, pages: int) -> Iterator[None]:
    """The dashboard of the folder's run, looked at by so many pages."""
    members = Membership(clients)
    with RunStatus(folder, members.roster) as status, dashboard_process(folder, Place.parse("0")) as url:
        status.training(100000, 1, 0)
        command = [sys.executable, "-c", VIEWER, url]
        viewers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(pages)]
        try:
            for viewer in viewers:
                if viewer.stdout is None or viewer.stdout.readline() != "ready\n":
                    raise RuntimeError("a page cannot read the stream")
            yield
        finally:
            for viewer in viewers:
                viewer.kill()
                viewer.communicate()


@dataclass(frozen=True)
class Cost:
    """What a step took, on average over a block."""

    wall: float
    cpu: float


def block(run: LocalRun, records: RecordWriter, steps: int) -> Cost:
    """Measure a block of steps, after some that let everything settle."""
    for _ in range(SETTLE):
        records.step(run.step().record())
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        records.step(run.step().record())
    return Cost((time.perf_counter() - wall) / steps, (time.process_time() - cpu) / steps)


def ratio(pairs: list[tuple[float, float]]) -> dict[str, float]:
    """The mean ratio of pairs (with, without), its 95 % interval, and the median, which no outlier moves.

    Ratios are averaged as logarithms. The interval is the normal one: there are enough pairs.
    """
    logs = [math.log(with_it / without) for with_it, without in pairs]
    middle = statistics.fmean(logs)
    spread = 1.96 * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
    return {
        "ratio": math.exp(middle),
        "low": math.exp(middle - spread),
        "high": math.exp(middle + spread),
        "median": math.exp(statistics.median(logs)),
    }


def measure(run: LocalRun, folder: Path, arguments: argparse.Namespace) -> list[tuple[Cost, Cost]]:
    """Pairs of blocks, with the dashboard and without."""
    found = []
    began = time.monotonic()
    with RecordWriter(folder / "records.jsonl") as records:
        (folder / "config.toml").write_text(run.config.to_toml())
        block(run, records, arguments.steps)  # warms up
        for number in range(arguments.rounds):
            costs = {}
            for opened in (True, False) if number % 2 == 0 else (False, True):
                with ExitStack() as stack:
                    if opened:
                        stack.enter_context(open_pages(folder, arguments.clients, arguments.pages))
                    costs[opened] = block(run, records, arguments.steps)
            found.append((costs[True], costs[False]))
            if time.monotonic() - began > arguments.seconds:
                break
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="digits")
    parser.add_argument("--root", default=".", help="where the data set lies")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--pages", type=int, default=1)
    parser.add_argument("--steps", type=int, default=40, help="steps of a block")
    parser.add_argument("--rounds", type=int, default=40, help="pairs of blocks, at most")
    parser.add_argument("--seconds", type=float, default=180, help="begin no further pair after so long")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "run")
        pairs = measure(make_run(arguments), folder, arguments)
    figures: dict[str, object] = {
        "milliseconds": 1e3 * statistics.median(without.wall for _, without in pairs),
        "pairs": len(pairs),
        "target": TARGET,
    }
    print(f"a step without the dashboard: {figures['milliseconds']:.1f} ms; {len(pairs)} pairs of blocks")
    for name in ("wall", "cpu"):
        told = ratio([(getattr(with_it, name), getattr(without, name)) for with_it, without in pairs])
        figures[name] = told
        print(
            f"{name:4} with it, times as long: {told['ratio']:.3f} [{told['low']:.3f}, {told['high']:.3f}], "
            f"median {told['median']:.3f}; wanted: at most {TARGET}"
        )
    if arguments.save:
        RESULTS.parent.mkdir(exist_ok=True)
        settings = {key: value for key, value in vars(arguments).items() if key not in ("root", "save")}
        content = {"settings": settings, "figures": figures, "provenance": provenance(0)}
        RESULTS.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
