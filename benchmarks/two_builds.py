"""Two trees of this project measured side by side, each in a process of its own, taking turns.

`benchmarks/codecs.py --against TREE` uses it. Both trees must be built (`pip install -e`, or the extension
beside their Python files). A change of the machine's mood meets both, since they take turns within a second.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).parents[1]

# What runs in each tree. It uses only what every tree has.
WORKER = """
import json, sys, time
import numpy as np
import torch
import cutlayer
from cutlayer import _native
torch.set_num_threads(1)
isa, shape, specs = json.loads(sys.argv[1])
if not _native.force_instruction_set(isa):
    sys.exit(f"no instruction set {isa} here; there is {_native.instruction_set()}")
x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).relu_()
codecs = [cutlayer.codec(spec) for spec in specs]
frames = [codec.encode(x) for codec in codecs]
out, copy = torch.empty_like(x), torch.empty_like(x)
calls = max(1, min(200, (1 << 22) // x.numel()))

def seconds(work):
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(calls):
            work()
        best = min(best, (time.perf_counter() - started) / calls)
    return best

print(json.dumps([cutlayer.__file__, _native.instruction_set()]), flush=True)
for line in sys.stdin:
    which = int(line)
    codec, frame = codecs[which], frames[which]
    print(json.dumps([
        seconds(lambda: codec.encode(x)),
        seconds(lambda: cutlayer.decode(frame, out=out)),
        seconds(lambda: copy.copy_(x)),
    ]), flush=True)
"""


class Worker:
    """A process that measures one tree when it is asked."""

    def __init__(self, tree: Path, isa: str | None, shape: Sequence[int], specs: Sequence[str]) -> None:
        source = tree.resolve() / "src"
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, json.dumps([isa, list(shape), list(specs)])],
            env={**os.environ, "PYTHONPATH": str(source)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        where, self.isa = self._answer()
        if not Path(where).is_relative_to(source):
            raise SystemExit(f"{tree} has no package of its own: {where} was imported instead")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def measure(self, which: int) -> tuple[float, float, float]:
        """Seconds that encode, decode and memcpy take."""
        assert self._process.stdin
        self._process.stdin.write(f"{which}\n")
        self._process.stdin.flush()
        encode, decode, copy = self._answer()
        return encode, decode, copy

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the process that measures has ended; see above")
        return json.loads(line)


def compare(
    before: Path, isa: str | None, shape: Sequence[int], specs: Sequence[str], rounds: int
) -> dict[str, Any]:
    """How many times as fast as `before` this tree is: medians over the rounds, lowest and highest."""
    result: dict[str, Any] = {}
    with Worker(before, isa, shape, specs) as old, Worker(HERE, isa, shape, specs) as new:
        if old.isa != new.isa:
            raise SystemExit(f"{old.isa} there and {new.isa} here: give both one with --isa")
        for which, spec in enumerate(specs):
            turns = [(old.measure(which), new.measure(which)) for _ in range(rounds)]
            row: dict[str, Any] = {}
            for i, name in enumerate(("encode", "decode")):
                gains = sorted(a[i] / b[i] for a, b in turns)
                seconds = min(b[i] for _, b in turns)
                row[name] = {
                    "gain": gains[rounds // 2],
                    "low": gains[0],
                    "high": gains[-1],
                    "microseconds_before": min(a[i] for a, _ in turns) * 1e6,
                    "microseconds": seconds * 1e6,
                    "of_memcpy": sorted(b[2] / b[i] for _, b in turns)[rounds // 2],
                }
            result[spec] = row
    return result
