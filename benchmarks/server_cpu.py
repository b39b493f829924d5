"""CPU time of the server a client and step, in this tree and in another one, which take turns.

    python benchmarks/server_cpu.py --before TREE                 100 clients that compute, in one process
    python benchmarks/server_cpu.py --before TREE --rounds 20     more turns
    python benchmarks/server_cpu.py                               this tree alone

Both trees must be built (`make install`). Each turn is a server in a process of its own, with real clients in
another one: the model is tiny, so that what is measured is the server's work on messages. It is processor
time of all threads of the server's process, and all codecs are named, because defaults differ between trees.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1]


def turn(clients: int, steps: int) -> float:
    """Microseconds a client and step, measured in the tree whose modules this process finds."""
    import torch
    from client_processes import network_run  # type: ignore[import-not-found]

    from cutlayer.config.schema import load

    settled: Any = contextlib.nullcontext
    with contextlib.suppress(ImportError):  # a tree that has no such thing serves without it, too
        from cutlayer.server.settled_objects import settled_objects as settled
    torch.set_num_threads(1)
    config = load(None, [
        f"train.clients={clients}", "train.epochs=100000", "train.batch_size=1", "model.width=4",
        "train.server_batching=fused", "codec.measure=false",
        "codec.up=ems:bpe=1.0", "codec.down=none", "codec.sync=none",
    ])  # fmt: skip
    with network_run(config, ".", 1) as server:
        for _ in range(3):
            server.step()
        with settled():
            began = time.process_time()
            for _ in range(steps):
                server.step()
            return 1e6 * (time.process_time() - began) / clients / steps


def measured(tree: Path, clients: int, steps: int) -> float:
    """One turn of a tree, in a process of its own."""
    # The tree's own modules stand before those beside this file.
    paths = os.pathsep.join([str(tree / "benchmarks"), str(tree / "src")])
    code = (
        f"import sys; sys.path.append({str(HERE / 'benchmarks')!r}); import server_cpu; "
        f"print(server_cpu.turn({clients}, {steps}))"
    )
    found = subprocess.run(
        [str(tree / ".venv/bin/python"), "-c", code],
        env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE, check=True, text=True,
    )  # fmt: skip
    return float(found.stdout.split()[-1])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, help="a built tree of another commit")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--steps", type=int, default=10, help="of a turn")
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    trees = [arguments.before.resolve(), HERE] if arguments.before else [HERE]
    found: list[list[float]] = []
    for _ in range(arguments.rounds):
        found.append([measured(tree, arguments.clients, arguments.steps) for tree in trees])
        print(*(f"{value:.0f}" for value in found[-1]), file=sys.stderr, flush=True)
    medians = [statistics.median(column) for column in zip(*found, strict=True)]
    figures: dict[str, Any] = {
        "microseconds of CPU a client and step": dict(
            zip(("before", "now") if arguments.before else ("now",), medians, strict=True)
        ),
        "n": len(found),
    }
    if arguments.before:
        ratios = sorted(now / before for before, now in found)
        tenth = len(ratios) // 10
        figures["now / before, ratio of medians"] = medians[1] / medians[0]
        figures["now / before, p10 to p90"] = [ratios[tenth], ratios[-1 - tenth]]
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
