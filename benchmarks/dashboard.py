"""Time of a training step with the dashboard open, as a ratio to the same run without it.

    python benchmarks/dashboard.py           print the ratio
    python benchmarks/dashboard.py --save    and write it to benchmarks/results/dashboard.json

One run in this process writes its records. Blocks of steps with and without the dashboard take turns, so that
a busy moment of the machine hits both. With it: the thread that keeps the status of all clients, the process
of the dashboard, and so many pages that read its stream. Nothing here passes or fails.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
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


def block(run: LocalRun, records: RecordWriter, steps: int) -> float:
    """Seconds of a step, on average over a block."""
    began = time.perf_counter()
    for _ in range(steps):
        records.step(run.step().record())
    return (time.perf_counter() - began) / steps


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
    parser.add_argument("--steps", type=int, default=30, help="steps of a block")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    run = make_run(arguments)
    without, ratios = [], []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "run")
        with RecordWriter(folder / "records.jsonl") as records:
            (folder / "config.toml").write_text(run.config.to_toml())
            block(run, records, arguments.steps)  # warms up
            for _ in range(arguments.rounds):
                with open_pages(folder, arguments.clients, arguments.pages):
                    open_seconds = block(run, records, arguments.steps)
                alone = block(run, records, arguments.steps)
                without.append(alone)
                ratios.append(open_seconds / alone)
    ratios.sort()
    tenth = len(ratios) // 10
    figures = {
        "milliseconds": 1e3 * statistics.median(without),
        "ratio": statistics.median(ratios),
        "p10": ratios[tenth],
        "p90": ratios[-1 - tenth],
        "target": TARGET,
    }
    print(
        f"a step without the dashboard: {figures['milliseconds']:.1f} ms; with it {figures['ratio']:.3f} "
        f"times as long ({figures['p10']:.3f} .. {figures['p90']:.3f}); wanted: at most {TARGET}"
    )
    if arguments.save:
        RESULTS.parent.mkdir(exist_ok=True)
        settings = {key: value for key, value in vars(arguments).items() if key not in ("root", "save")}
        content = {"settings": settings, "figures": figures, "provenance": provenance(0)}
        RESULTS.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
