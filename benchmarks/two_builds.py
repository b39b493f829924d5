"""Two trees of this project measured side by side, each in a process of its own, taking turns.

`benchmarks/codecs.py --against TREE` uses it. Both trees must be built (`pip install -e`, or the extension
beside their Python files). It is meant for machines on which others work too: turns are short and alternate,
so that a change of the machine's mood meets both; time is the processor's, not the wall's; and what counts is
the median over pairs of turns, beside the ratio of the shortest times.

Both processes read and write the same memory (Linux only). With memory of their own, one was up to a fifth
faster than the other with the very same build, for as long as it lived: what counts is which pages it got.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).parents[1]

# What runs in each tree. It uses only what every tree has.
WORKER = """
import json, mmap, sys, time
import torch
import cutlayer
from cutlayer import _native
torch.set_num_threads(1)
isa, memory = json.loads(sys.argv[1])
if not _native.force_instruction_set(isa):
    sys.exit(f"no instruction set {isa} here; there is {_native.instruction_set()}")

def seconds(work, calls):
    best = float("inf")
    for _ in range(2):
        started = time.process_time()
        for _ in range(calls):
            work()
        best = min(best, (time.process_time() - started) / calls)
    return best

print(json.dumps([cutlayer.__file__, _native.instruction_set()]), flush=True)
last = None
for line in sys.stdin:
    shape, spec = json.loads(line)
    if shape != last:
        made = torch.randn(shape, generator=torch.Generator().manual_seed(0)).relu_()
        pages = mmap.mmap(memory, 3 * made.nbytes)
        x, out, copy = torch.frombuffer(pages, dtype=torch.float32).view(3, *shape)
        x.copy_(made)
        last = shape
        calls = max(1, min(100, (1 << 21) // x.numel()))
    codec = cutlayer.codec(spec)
    frame = codec.encode(x)
    cutlayer.decode(frame, out=out)
    print(json.dumps([
        seconds(lambda: codec.encode(x), calls),
        seconds(lambda: cutlayer.decode(frame, out=out), calls),
        seconds(lambda: copy.copy_(x), calls),
    ]), flush=True)
"""


class Worker:
    """A process that measures one tree when it is asked."""

    def __init__(self, tree: Path, isa: str | None, memory: int) -> None:
        source = tree.resolve() / "src"
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, json.dumps([isa, memory])],
            env={**os.environ, "PYTHONPATH": str(source)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[memory],
            text=True,
        )
        where, self.isa = self._answer()
        if not Path(where).is_relative_to(source):
            raise SystemExit(f"{tree} has no package of its own: {where} was imported instead")

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def measure(self, shape: Sequence[int], spec: str) -> tuple[float, float, float]:
        """Seconds that encode, decode and memcpy take."""
        assert self._process.stdin
        self._process.stdin.write(f"{json.dumps([list(shape), spec])}\n")
        self._process.stdin.flush()
        encode, decode, copy = self._answer()
        return encode, decode, copy

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the process that measures has ended; see above")
        return json.loads(line)


class Pair:
    """This tree and another one, before it."""

    def __init__(self, before: Path, isa: str | None) -> None:
        self._memory = os.memfd_create("tensors")
        self._old, self._new = Worker(before, isa, self._memory), Worker(HERE, isa, self._memory)
        if self._old.isa != self._new.isa:
            raise SystemExit(f"{self._old.isa} there and {self._new.isa} here: give both one with --isa")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._old.close()
        self._new.close()
        os.close(self._memory)

    def compare(self, shape: Sequence[int], spec: str, rounds: int) -> dict[str, Any]:
        """How many times as fast as before: over pairs of turns, and by the shortest times of all."""
        tensors = 3 * 4 * math.prod(shape)  # input, output, and a copy, of float32
        os.ftruncate(self._memory, max(tensors, os.fstat(self._memory).st_size))
        turns = [self._turn(shape, spec, swapped=bool(i % 2)) for i in range(rounds)]
        row: dict[str, Any] = {}
        for i, name in enumerate(("encode", "decode")):
            gains = sorted(old[i] / new[i] for old, new in turns)
            before, now = (min(turn[side][i] for turn in turns) for side in (0, 1))
            row[name] = {
                "gain": gains[rounds // 2],
                "low": gains[rounds // 4],
                "high": gains[-1 - rounds // 4],
                "gain_of_shortest": before / now,
                "microseconds_before": before * 1e6,
                "microseconds": now * 1e6,
                "of_memcpy": min(new[2] for _, new in turns) / now,
            }
        return row

    def _turn(
        self, shape: Sequence[int], spec: str, *, swapped: bool
    ) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        """Both measured once, in either order."""
        if swapped:
            new = self._new.measure(shape, spec)
            return self._old.measure(shape, spec), new
        old = self._old.measure(shape, spec)
        return old, self._new.measure(shape, spec)
