"""A training step of this tree and of another one, which take turns: no slower without torchrun.

    python benchmarks/step_of_two_trees.py --before TREE --root DATA
    python benchmarks/step_of_two_trees.py --before TREE --root DATA --pairs 60

Both trees must be built (`make install`). Each has a process of its own, which makes a step when it is asked:
in one process, and over gRPC with clients in another. Turns are short, so that a change of the machine's mood
meets both, and what counts is the median over pairs of turns. `digits` is a small model with ten clients,
where messages count; `cifar10` is a thin ResNet18 with two, where computing does.
"""

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1]
SETTINGS = {
    "digits": ["train.clients=10", "train.batch_size=8", "codec.up=ems:bpe=1.0"],
    "cifar10": [
        "data.source=cifar10", "data.limit=2000", "model.name=resnet18", "model.width=16", "model.cut=medium",
        "train.clients=2", "train.batch_size=50", "codec.up=ms:ratio=0.99,bits=2",
    ],
}  # fmt: skip


def worker(what: str, root: str) -> None:
    """Make a step in one process and one over gRPC whenever a line comes in; answer with their seconds."""
    import torch
    from client_processes import network_run  # type: ignore[import-not-found]

    from cutlayer.config.schema import load
    from cutlayer.training.local_run import local_run

    torch.set_num_threads(1)
    # All that has a default is named where it counts: defaults differ between trees.
    common = [
        f"data.root={root}",
        "train.epochs=100000",
        "codec.measure=false",
        "train.server_batching=fused",
    ]
    config = load(None, [*common, "codec.down=none", "codec.sync=none", *SETTINGS[what]])
    local = local_run(config)
    with network_run(config, root, 1) as remote:
        for _ in sys.stdin:
            found = []
            for step in (local.step, remote.step):
                began = time.perf_counter()
                step()
                found.append(time.perf_counter() - began)
            print(json.dumps(found), flush=True)


class Tree:
    """The process of one tree."""

    def __init__(self, tree: Path, what: str, root: str) -> None:
        # The tree's own modules stand before those beside this file.
        paths = os.pathsep.join([str(tree / "benchmarks"), str(tree / "src")])
        code = (
            f"import sys; sys.path.append({str(HERE / 'benchmarks')!r}); import step_of_two_trees; "
            f"step_of_two_trees.worker({what!r}, {root!r})"
        )
        self.process = subprocess.Popen(
            [tree / ".venv" / "bin" / "python", "-c", code],
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def step(self) -> list[float]:
        """Seconds of a step in one process, and over gRPC."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            with contextlib.suppress(json.JSONDecodeError):  # what else a tree has to say
                found: list[float] = json.loads(line)
                return found
        raise SystemExit("a tree's process has ended; see above")


def compare(before: Path, what: str, root: str, pairs: int) -> dict[str, Any]:
    """The ratio of this tree's time to the other's."""
    trees = [Tree(tree.resolve(), what, root) for tree in (before, HERE)]
    try:
        for tree in trees * 3:
            tree.step()
        found = []
        for number in range(pairs):
            turn = [tree.step() for tree in (trees if number % 2 else trees[::-1])]
            found.append(turn if number % 2 else turn[::-1])
    finally:
        for tree in trees:
            tree.process.terminate()
            tree.process.wait()
    figures: dict[str, Any] = {}
    for place, name in enumerate(("in one process", "over gRPC")):
        logs = [math.log(now[place] / then[place]) for then, now in found]
        ordered = sorted(logs)
        figures[name] = {
            "this / before, median": math.exp(statistics.median(logs)),
            "p10": math.exp(ordered[pairs // 10]),
            "p90": math.exp(ordered[-1 - pairs // 10]),
            "before, milliseconds": 1e3 * statistics.median(then[place] for then, _ in found),
        }
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, required=True, help="another built tree of this project")
    parser.add_argument("--root", default=".", help="where CIFAR-10 lies")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--only", choices=sorted(SETTINGS))
    arguments = parser.parse_args()
    chosen = [arguments.only] if arguments.only else list(SETTINGS)
    print(
        json.dumps(
            {what: compare(arguments.before, what, arguments.root, arguments.pairs) for what in chosen},
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
