"""`ems` on small and on large tensors: this tree against another one, in one run.

    python benchmarks/ems_small.py --against ../before --isa avx2          print the table
    python benchmarks/ems_small.py --against ../before --isa avx2 --save   and keep it in results
    python benchmarks/ems_small.py --against . --threads 2 --before-threads 1 --large   what a thread gains

`--against` is a checkout of another commit with its kernels built in place. A process for each tree works in
turn, so that both see the same changes of the machine's speed; the best time of each counts. With one thread
that is CPU time, which other programs disturb little; with several it is wall-clock time, for which the
machine must be idle. Tensors have the shapes of the cuts of a ResNet18 of width 16 on images of 32 x 32: one
sample, sixteen, 128, and with --large 67 MB. The elements are smoothed noise behind a ReLU; with --maps (a
folder that benchmarks/maps.py has filled) also feature maps of CIFAR-10. `auto` is `transform=auto`; its
encoding time is also given as a multiple of that of plain `ems`. Nothing passes or fails.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CUTS = {"shallow": (16, 32, 32), "medium": (32, 16, 16), "deep": (64, 8, 8)}
SPECS = {"ems": "ems:bpe=1.0", "auto": "ems:bpe=1.0,transform=auto"}
LARGE = 0  # stands for as many samples as make 67 MB
SAMPLES = {"noise": (1, 16, 128, LARGE), "cifar10": (16, 128)}
RESULTS = Path(__file__).parent / "results" / "ems_small.json"
ROUNDS = 5
SECONDS = 0.12  # of each measurement in a round


def worker(isa: str, threads: int) -> None:
    """Answer requests on standard input: a spec and a tensor in, seconds of encoding and decoding out."""
    import torch

    import cutlayer
    from cutlayer import _native

    if isa and not _native.force_instruction_set(isa):
        sys.exit(f"this processor has no {isa}")
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    tensors: dict[str, Any] = {}
    for line in sys.stdin:
        spec, shape, maps, cut = json.loads(line)
        if line[line.index("[", 1) :] not in tensors:
            tensors.clear()
            tensors[line[line.index("[", 1) :]] = elements(tuple(shape), maps, cut)
        (x,) = tensors.values()
        codec = cutlayer.codec(spec)
        frame, out = codec.encode(x), torch.empty_like(x)
        taken = [best(lambda: codec.encode(x), clock), best(lambda: cutlayer.decode(frame, out=out), clock)]  # noqa: B023
        print(json.dumps([*taken, len(frame)]), flush=True)


def elements(shape: tuple[int, ...], maps: str, cut: str) -> Any:
    """Feature maps from a file, or smoothed noise behind a ReLU."""
    import torch

    if maps:
        from safetensors.torch import load_file

        return load_file(maps)[cut][: shape[0]].contiguous()
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    for dimension, weight in ((-1, 0.7), (-2, 0.5), (1, 0.4)):
        x = x + weight * x.roll(1, dimension)
    return x.relu().contiguous()


def best(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """The least seconds of several runs."""
    found, end = float("inf"), time.perf_counter() + SECONDS
    while True:
        started = clock()
        work()
        found = min(found, clock() - started)
        if time.perf_counter() >= end:
            return found


class Tree:
    """A process that runs the codecs of one tree."""

    def __init__(self, root: Path, isa: str, threads: int) -> None:
        environment = {**os.environ, "PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, __file__, "--worker", "--isa", isa, "--threads", str(threads)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def measure(self, spec: str, shape: tuple[int, ...], maps: str, cut: str) -> list[float]:
        """Seconds of encoding, seconds of decoding, bytes."""
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps([spec, shape, maps, cut]), file=self.process.stdin, flush=True)
        found: list[float] = json.loads(self.process.stdout.readline())
        return found


def compare(
    trees: tuple[Tree, Tree], spec: str, shape: tuple[int, ...], maps: str, cut: str, rounds: int
) -> dict[str, Any]:
    """The best times of both trees, in turn."""
    found = [[float("inf"), float("inf"), 0.0] for _ in range(2)]
    for _ in range(rounds):
        for of, tree in zip(found, trees, strict=True):
            encode, decode, size = tree.measure(spec, shape, maps, cut)
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
    parser.add_argument("--before-threads", type=int, help="threads of the other tree; by default the same")
    parser.add_argument("--large", action="store_true", help="and 67 MB")
    parser.add_argument("--maps", type=Path, help="a folder with the maps of benchmarks/maps.py")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/ems_small.json")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options.isa, options.threads)
    if options.against is None:
        parser.error("--against is needed")
    before = options.before_threads or options.threads
    trees = (
        Tree(options.against, options.isa, before),
        Tree(Path(__file__).parents[1], options.isa, options.threads),
    )
    rows: dict[str, Any] = {}
    print(
        "| elements, cut, samples | codec | encode, ms: before, now, times | decode, ms: before, now, times "
        "| bytes: before, now | encode, times plain: before, now |"
    )
    print("|---|---|---|---|---|---|")
    files = {"noise": "", **({"cifar10": str(options.maps / "cifar10.safetensors")} if options.maps else {})}
    for name, cut, samples in [(f, c, n) for f in files for c in CUTS for n in SAMPLES[f]]:
        if samples == LARGE and not options.large:
            continue
        shape = (samples or (1 << 24) // math.prod(CUTS[cut]), *CUTS[cut])
        for codec, spec in SPECS.items() if samples != LARGE else [("ems", SPECS["ems"])]:
            row = compare(trees, spec, shape, files[name], cut, options.rounds)
            key = f"{name} {cut} {shape[0]}"
            rows[f"{key} {codec}"] = row
            shown = [
                f"{row[way]['before']:.3f}, {row[way]['now']:.3f}, {row[way]['times']:.1f}"
                for way in ("encode_ms", "decode_ms")
            ]
            shown.append(f"{row['bytes']['before']:.0f}, {row['bytes']['now']:.0f}")
            plain = rows[f"{key} ems"]["encode_ms"]
            row["encode_times_plain"] = {k: row["encode_ms"][k] / plain[k] for k in ("before", "now")}
            shown.append(", ".join(f"{times:.1f}" for times in row["encode_times_plain"].values()))
            print(f"| {name}, {cut}, {shape[0]} | {codec} | {' | '.join(shown)} |", flush=True)
    if options.save:
        from cutlayer.training.provenance import provenance

        known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
        key = f"{options.isa or 'best'}, threads={options.threads}"
        key += f" against {before}" if before != options.threads else ""
        known[key] = {"provenance": provenance(0), "rows": rows}
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    return None


if __name__ == "__main__":
    main()
