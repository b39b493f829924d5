"""`ems` on small and on large tensors: this tree against another one, in one run.

    python benchmarks/ems_small.py --against ../before --isa avx2          print the table
    python benchmarks/ems_small.py --against ../before --isa avx2 --save   and keep it in results

`--against` is a checkout of another commit with its kernels built in place. A process for each tree works in
turn, so that both see the same changes of the machine's speed; the best time of each counts. Tensors have the
shapes of the cuts of a ResNet18 of width 16 on images of 32 x 32: one sample, sixteen, and with --large
67 MB. The elements are smoothed noise behind a ReLU. `auto` is `transform=auto`. Nothing passes or fails.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CUTS = {"shallow": (16, 32, 32), "medium": (32, 16, 16), "deep": (64, 8, 8)}
SPECS = {"ems": "ems:bpe=1.0", "auto": "ems:bpe=1.0,transform=auto"}
RESULTS = Path(__file__).parent / "results" / "ems_small.json"
ROUNDS = 5
SECONDS = 0.12  # of each measurement in a round


def worker(isa: str, threads: int) -> None:
    """Answer requests on standard input: a spec and a shape in, seconds of encoding and decoding out."""
    import torch

    import cutlayer
    from cutlayer import _native

    if isa and not _native.force_instruction_set(isa):
        sys.exit(f"this processor has no {isa}")
    torch.set_num_threads(threads)
    tensors: dict[tuple[int, ...], Any] = {}
    for line in sys.stdin:
        spec, shape = json.loads(line)
        shape = tuple(shape)
        if shape not in tensors:
            tensors.clear()
            x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
            for dimension, weight in ((-1, 0.7), (-2, 0.5), (1, 0.4)):
                x = x + weight * x.roll(1, dimension)
            tensors[shape] = x.relu().contiguous()
        x = tensors[shape]
        codec = cutlayer.codec(spec)
        frame, out = codec.encode(x), torch.empty_like(x)
        taken = [best(lambda: codec.encode(x)), best(lambda: cutlayer.decode(frame, out=out))]  # noqa: B023
        print(json.dumps([*taken, len(frame)]), flush=True)


def best(work: Any) -> float:
    """The least seconds of several runs."""
    found, end = float("inf"), time.perf_counter() + SECONDS
    while True:
        started = time.perf_counter()
        work()
        now = time.perf_counter()
        found = min(found, now - started)
        if now >= end:
            return found


class Tree:
    """A process that runs the codecs of one tree."""

    def __init__(self, root: Path, isa: str, threads: int) -> None:
        environment = {**os.environ, "PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, __file__, "--worker", "--isa", isa, "--threads", str(threads)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def measure(self, spec: str, shape: tuple[int, ...]) -> list[float]:
        """Seconds of encoding, seconds of decoding, bytes."""
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps([spec, shape]), file=self.process.stdin, flush=True)
        found: list[float] = json.loads(self.process.stdout.readline())
        return found


def compare(old: Tree, new: Tree, spec: str, shape: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """The best times of both trees, in turn."""
    found = [[float("inf"), float("inf"), 0.0] for _ in range(2)]
    for _ in range(rounds):
        for of, tree in zip(found, (old, new), strict=True):
            encode, decode, size = tree.measure(spec, shape)
            of[:] = [min(of[0], encode), min(of[1], decode), size]
    (old_encode, old_decode, old_bytes), (encode, decode, size) = found
    return {
        "encode_ms": {"before": 1e3 * old_encode, "now": 1e3 * encode, "times": old_encode / encode},
        "decode_ms": {"before": 1e3 * old_decode, "now": 1e3 * decode, "times": old_decode / decode},
        "bytes": {"before": old_bytes, "now": size},
    }


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", type=Path, help="a checkout of another commit, with its kernels built")
    parser.add_argument("--isa", default="", help="generic, avx2 or avx512; by default the processor's best")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--large", action="store_true", help="and 67 MB")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/ems_small.json")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options.isa, options.threads)
    if options.against is None:
        parser.error("--against is needed")
    old, new = (
        Tree(root, options.isa, options.threads) for root in (options.against, Path(__file__).parents[1])
    )
    rows: dict[str, Any] = {}
    print(
        "| cut, samples | codec | encode, ms: before, now, times | decode, ms: before, now, times | bytes |"
    )
    print("|---|---|---|---|---|")
    for cut, shape in CUTS.items():
        whole = [1, 16] + ([(1 << 24) // (shape[0] * shape[1] * shape[2])] if options.large else [])
        for samples in whole:
            for name, spec in SPECS.items() if samples < 1000 else [("ems", SPECS["ems"])]:
                row = rows[f"{cut} {samples} {name}"] = compare(
                    old, new, spec, (samples, *shape), options.rounds
                )
                times = [
                    f"{row[way]['before']:.3f}, {row[way]['now']:.3f}, {row[way]['times']:.1f}"
                    for way in ("encode_ms", "decode_ms")
                ]
                times.append(f"{row['bytes']['before']:.0f}, {row['bytes']['now']:.0f}")
                print(f"| {cut}, {samples} | {name} | {' | '.join(times)} |")
    if options.save:
        from cutlayer.training.provenance import provenance

        known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
        key = f"{options.isa or 'best'}, threads={options.threads}"
        known[key] = {"provenance": provenance(0), "rows": rows}
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    return None


if __name__ == "__main__":
    main()
