"""Time to accuracy of mode async against parallel, where each fifth client is ten times slower.

    python benchmarks/async_mode.py            print the tables
    python benchmarks/async_mode.py --save     and write them to benchmarks/results/async_mode.json

Digits on ten clients in one process. Time is that of the virtual clock, so the figures are the same on every
machine: one unit is what a fast client takes for a batch, forward and backward. Nothing is sent over a link.
Each mode has the same model, data, batch size, learning rate and momentum. A mode ends when it has reached
the highest target, or after the given time.
"""

import argparse
import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from cutlayer.config.schema import load
from cutlayer.training.local_run import LocalRun, local_run
from cutlayer.training.provenance import provenance

RESULTS = Path(__file__).parent / "results" / "async_mode.json"
CLIENTS = 10
TARGETS = (0.90, 0.95, 0.97)
SLOW = "link.speeds=[1, 1, 1, 1, 0.1]"
PARTITIONS = ("even", "dirichlet:alpha=0.3")
KINDS: dict[str, list[str]] = {
    "parallel, all fast": ["train.mode=parallel", "link.speeds=[1]"],
    "parallel": ["train.mode=parallel", SLOW],
    "async, K = 2": ["train.mode=async", "train.buffer=2", SLOW],
    "async, K = 5": ["train.mode=async", "train.buffer=5", SLOW],
    "async, K = 8": ["train.mode=async", "train.buffer=8", SLOW],
    "async, K = 8, fresh only": ["train.mode=async", "train.buffer=8", "train.max_staleness=2", SLOW],
}


def start(arguments: argparse.Namespace, settings: Sequence[str], seed: int) -> LocalRun:
    """A run that does not end by itself."""
    common = [
        f"seed={seed}",
        f"train.clients={CLIENTS}",
        "train.epochs=1000000",
        f"train.batch_size={arguments.batch}",
        f"train.lr={arguments.lr}",
        f"train.momentum={arguments.momentum}",
        "train.schedule=constant",
        "codec.up=none",
        "link.jitter=0.1",
    ]
    return local_run(load(None, [*common, *settings]))


def unit(arguments: argparse.Namespace) -> float:
    """What a fast client takes for a batch, in simulated seconds."""
    run = start(arguments, ["train.mode=parallel", "link.speeds=[1]", "link.jitter=0"], 0)
    return run.step().simulated


def measure(arguments: argparse.Namespace, settings: Sequence[str], seed: int, one: float) -> dict[str, Any]:
    """When each target was first reached, the best accuracy, and what was used of slow clients."""
    run = start(arguments, settings, seed)
    reached: dict[str, float] = {}
    best, ages, discarded, arrivals, slow, due = 0.0, 0, 0, 0, 0, 0.0
    while True:
        result = run.step()
        now = result.simulated / one
        arrivals += len(result.step.clients)
        slow += sum(client % 5 == 4 for client in result.step.clients)
        ages += sum(result.ages or ())
        discarded += result.discarded
        if now >= due:
            due = now + arguments.every
            accuracy = run.evaluate().metrics["accuracy"]
            best = max(best, accuracy)
            for target in TARGETS:
                if accuracy >= target:
                    reached.setdefault(f"{target:g}", now)
        if len(reached) == len(TARGETS) or now >= arguments.time:
            return {
                "reached": reached,
                "best": best,
                "updates": run.number,
                "mean_staleness": ages / arrivals,
                "slow_share": slow / arrivals,
                "discarded": discarded,
            }


def show(partition: str, found: dict[str, list[dict[str, Any]]]) -> None:
    """One table: medians over seeds."""
    print(f"\n{partition}")
    heads = "".join(f"{f'to {target:.0%}':>12}" for target in TARGETS)
    print(f"{'':28}{heads}{'best':>8}{'staleness':>11}{'slow':>7}{'discarded':>11}")
    for name, runs in found.items():
        times = ""
        for target in TARGETS:
            each = [one["reached"].get(f"{target:g}", math.inf) for one in runs]
            times += f"{statistics.median(each):12.0f}"
        middle = {key: statistics.median(one[key] for one in runs) for key in runs[0] if key != "reached"}
        print(
            f"{name:28}{times}{middle['best']:8.3f}{middle['mean_staleness']:11.1f}"
            f"{middle['slow_share']:7.1%}{middle['discarded']:11.0f}"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--time", type=float, default=1000.0, help="units of time after which a run ends")
    parser.add_argument("--every", type=float, default=2.0, help="units of time between evaluations")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    one = unit(arguments)
    figures: dict[str, Any] = {}
    for partition in PARTITIONS:
        figures[partition] = {
            name: [
                measure(arguments, [*settings, f"data.partition={partition}"], seed, one)
                for seed in range(arguments.seeds)
            ]
            for name, settings in KINDS.items()
        }
        show(partition, figures[partition])
    if arguments.save:
        RESULTS.parent.mkdir(exist_ok=True)
        settings = {key: value for key, value in vars(arguments).items() if key != "save"}
        content = {"settings": settings, "figures": figures, "provenance": provenance(0)}
        RESULTS.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
