"""What a second rank of the server costs: CPU time a client and step, summed over ranks, as a ratio.

    python benchmarks/ranks.py            print the figures
    python benchmarks/ranks.py --save     and write them to benchmarks/results/ranks.json

Both servers have the same light clients (`cutlayer load`), in one process, on loopback. It takes about two
minutes on two idle cores. Nothing here passes or fails; the target is printed beside the figure.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from cutlayer.training.provenance import provenance
from cutlayer.training.records import read

RESULTS = Path(__file__).parent / "results" / "ranks.json"
# More than a start and a few steps take, in seconds.
PATIENCE = 110.0
_TICKS = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """A port that nobody listens on, nor on the next."""
    while True:
        with socket.socket() as found, socket.socket() as following:
            found.bind(("127.0.0.1", 0))
            port: int = found.getsockname()[1]
            with suppress(OSError, OverflowError):
                following.bind(("127.0.0.1", port + 1))
                return port


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def steps(directory: Path) -> int:
    """How many steps a run has made."""
    path = directory / "records.jsonl"
    return sum(record["kind"] == "step" for record in read(path)) if path.exists() else 0


def wait_for(directory: Path, number: int, processes: list[subprocess.Popen[bytes]]) -> int:
    """Wait until a run has made so many steps; how many it has."""
    end = time.monotonic() + PATIENCE
    while (made := steps(directory)) < number:
        if any(process.poll() is not None for process in processes) or time.monotonic() > end:
            sys.exit(f"the run has made {made} steps and does not come to {number}; see above")
        time.sleep(0.1)
    return made


def measure(ranks: int, count: int, rounds: int) -> float:
    """CPU seconds of all ranks, a client and step."""
    port, meeting = free_port(), free_port()
    settings = [
        f"train.clients={count}",
        "train.batch_size=1",
        "train.epochs=1000",
        "train.evaluate_every=0",
        "model.width=4",
        "codec.measure=false",
        "output.tensorboard=false",
    ]
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        command = [sys.executable, "-m", "cutlayer", "serve", "--out", str(directory), "--quiet"]
        command += ["--listen", f"127.0.0.1:{port}", "--threads", "1"]
        command += [part for setting in settings for part in ("--set", setting)]
        servers = [
            subprocess.Popen(
                command,
                env={
                    **os.environ,
                    "OMP_NUM_THREADS": "1",
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": str(ranks),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(meeting),
                    "TORCHELASTIC_RUN_ID": "benchmark",
                },
            )
            for rank in range(ranks)
        ]
        load = [sys.executable, "-m", "cutlayer", "load", f"127.0.0.1:{port}", "--clients", str(count)]
        load += ["--as", "0", "--steps", "1000", "--processes", "1", "--json"]
        playing = subprocess.Popen(load, stdout=subprocess.DEVNULL)
        try:
            begun = wait_for(directory, 3, [*servers, playing])
            before = [cpu_seconds(server.pid) for server in servers]
            made = wait_for(directory, begun + rounds, [*servers, playing]) - begun
            after = [cpu_seconds(server.pid) for server in servers]
        finally:
            # The clients first: they would try again.
            for process in (playing, *servers):
                process.kill()
                process.wait()
    return (sum(after) - sum(before)) / made / count


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each, by turns")
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    pairs = [
        [measure(ranks, arguments.clients, arguments.steps) for ranks in (1, 2)]
        for _ in range(arguments.rounds)
    ]
    one, two = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratios = sorted(of_two / of_one for of_one, of_two in pairs)
    figures: dict[str, Any] = {
        "clients": arguments.clients,
        "steps": arguments.steps,
        "n": arguments.rounds,
        "one rank, microseconds a client and step, median": 1e6 * one,
        "two ranks, microseconds a client and step, summed, median": 1e6 * two,
        "two / one, median of pairs": statistics.median(ratios),
        "least": ratios[0],
        "most": ratios[-1],
        "target": "at most 1.25",
    }
    print(json.dumps(figures, indent=2))
    if arguments.save:
        RESULTS.write_text(json.dumps({"provenance": provenance(0), **figures}, indent=2) + "\n")


if __name__ == "__main__":
    main()
