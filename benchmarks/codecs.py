"""Speed of the codecs, as ratios to memcpy of the same buffer in the same run.

    python benchmarks/codecs.py                 print the table
    python benchmarks/codecs.py --save          and write it to benchmarks/results/codecs.json
    python benchmarks/codecs.py --isa avx2      with one instruction set; results go to codecs-avx2.json
    python benchmarks/codecs.py --against TREE  how many times as fast as another tree that is built,
                                                in one run: 67 MB, and one and sixteen samples of each cut;
                                                some three minutes, also on a busy machine

Run the others on an idle machine. Nothing here passes or fails; the targets are printed beside the figures.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from two_builds import Pair  # type: ignore[import-not-found]

import cutlayer
from cutlayer.codecs.kernels import dispatch as kernels
from cutlayer.codecs.kernels import instruction_set
from cutlayer.tools.bench import best, memcpy_seconds
from cutlayer.training.provenance import provenance

RESULTS = Path(__file__).parent / "results"
# codec: (least encode ratio, least decode ratio)
TARGETS = {
    "ms:ratio=0.99,bits=2": (0.35, 0.85),
    "ms:ratio=0.99,bits=2,rounding=nearest": (0.35, 0.85),
    "sp:ratio=0.95875": (0.35, 0.85),
    "qu:bits=3": (0.40, 0.85),
    "rt:ratio=0.95875,alpha=0.1": (0.20, 0.85),
}
OTHERS = ("dense", "dense:dtype=float16", "rk:ratio=0.95875", "km:bits=3")
# More settings, whose kernels differ, for the comparison with another tree.
SETTINGS = (
    "ms:ratio=0.99,bits=4",
    "ms:ratio=0.99,bits=2,scope=sample",
    "sp:ratio=0.95875,scope=sample",
    "qu:bits=8",
)
SAMPLE = (16, 32, 32)  # the feature map of one image: shallow cut of a thin ResNet18
CUTS = {"shallow": SAMPLE, "medium": (32, 16, 16), "deep": (64, 8, 8)}


def half_rectified(elements: int) -> Tensor:
    """What a ReLU leaves of normal noise, in samples of 16 x 32 x 32."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(elements, generator=generator).relu_().view(-1, *SAMPLE)


def with_topk(x: Tensor) -> bytes:
    """The work of `ms` written with torch.topk, as the authors published it, but packed into bytes."""
    flat = x.reshape(-1)
    k = flat.numel() // 100
    top = flat.topk(k)
    mask = torch.floor(flat * 3 / top.values.min())
    mask[top.indices] = 3
    codes = mask.to(torch.uint8).view(-1, 4)
    packed = codes[:, 0] | codes[:, 1] << 2 | codes[:, 2] << 4 | codes[:, 3] << 6
    values = flat[top.indices.sort().values]
    return packed.numpy().tobytes() + values.numpy().tobytes()


def over_topk(x: Tensor) -> float:
    """How many times faster `ms` encodes than the same thing with torch.topk."""
    codec = cutlayer.codec("ms:ratio=0.99,bits=2")
    return best(lambda: with_topk(x), least=2, seconds=1) / best(lambda: codec.encode(x), seconds=1)


def measure(spec: str, x: Tensor, rounds: int) -> dict[str, float]:
    """Encode and decode against memcpy, interleaved, and two threads against one."""
    codec = cutlayer.codec(spec)
    out = torch.empty_like(x)
    frame = codec.encode(x)
    encode: list[float] = []
    decode: list[float] = []
    # Rounds interleave codec and memcpy, so that a change of the machine's mood meets both.
    for _ in range(rounds):
        copy = memcpy_seconds(x, least=3, seconds=0.2)
        encode.append(copy / best(lambda: codec.encode(x), seconds=0.2))
        decode.append(copy / best(lambda: cutlayer.decode(frame, out=out), seconds=0.2))
    one = (
        best(lambda: codec.encode(x), seconds=0.5),
        best(lambda: cutlayer.decode(frame, out=out), seconds=0.5),
    )
    torch.set_num_threads(2)
    two = (
        best(lambda: codec.encode(x), seconds=0.5),
        best(lambda: cutlayer.decode(frame, out=out), seconds=0.5),
    )
    torch.set_num_threads(1)
    return {
        "encode": sorted(encode)[rounds // 2],
        "encode_low": min(encode),
        "encode_high": max(encode),
        "decode": sorted(decode)[rounds // 2],
        "decode_low": min(decode),
        "decode_high": max(decode),
        "encode_two_threads": one[0] / two[0],
        "decode_two_threads": one[1] / two[1],
        "encode_gbps": x.numel() * 4 / one[0] / 1e9,
        "decode_gbps": x.numel() * 4 / one[1] / 1e9,
    }


def peak_and_present() -> tuple[int, int]:
    """Peak and present memory of this process in bytes (Linux)."""
    status = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line
    )
    return int(status["VmHWM"].split()[0]) << 10, int(status["VmRSS"].split()[0]) << 10


def extra_memory(spec: str) -> float:
    """Encode's peak memory beyond input and frame, as a share of the input. Only in a fresh process."""
    x, codec = half_rectified(16 << 20), cutlayer.codec(spec)
    codec.encode(x[:2])
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = peak_and_present()[1]
    frame = codec.encode(x)
    return (peak_and_present()[0] - before - len(frame)) / (x.numel() * 4)


def in_fresh_process(spec: str) -> float:
    """`extra_memory` where no earlier peak hides it."""
    command = [sys.executable, __file__, "--memory-of", spec]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def round_trip_microseconds(spec: str) -> float:
    """A tensor of 4,096 elements there and back."""
    codec, x = cutlayer.codec(spec), half_rectified(16384).reshape(-1)[:4096].view(1, 4096)

    def many() -> None:
        for _ in range(200):
            cutlayer.decode(codec.encode(x))

    return best(many, least=7, seconds=0.5) / 200 * 1e6


def save(name: str, result: dict[str, Any]) -> None:
    """With what made it: commit, versions, processor."""
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"provenance": provenance(seed=0), **result}, indent=2) + "\n")
    print(f"written to {path}")


def against(tree: Path, isa: str | None, rounds: int) -> dict[str, Any]:
    """This tree and another one: 67 MB, and what clients send."""
    sizes = {"67 MB": (1024, *SAMPLE)}
    sizes |= {f"{n} x {cut}": (n, *shape) for cut, shape in CUTS.items() for n in (1, 16)}
    result: dict[str, Any] = {name: {} for name in sizes}
    with Pair(tree, isa) as pair:
        for name, shape in sizes.items():
            print(f"\n{name}: times as fast as before, median and by the shortest times")
            print(
                f"{'':40}{'encode':36}{'decode':36}".rstrip()
                + "  (microseconds now; share of memcpy's speed)"
            )
            for spec in (*TARGETS, *SETTINGS, *OTHERS) if name == "67 MB" else TARGETS:
                row = result[name][spec] = pair.compare(shape, spec, rounds)
                told = (
                    f"{way['gain']:6.2f} {way['gain_of_shortest']:6.2f}  "
                    f"({way['microseconds']:.0f}; {way['of_memcpy']:.2f})"
                    for way in (row["encode"], row["decode"])
                )
                print(f"{spec:40}" + "".join(f"{text:36}" for text in told), flush=True)
    return result


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", action="store_true", help="write to benchmarks/results")
    parser.add_argument("--isa", choices=instruction_set.NAMES, help="use this instruction set, not the best")
    parser.add_argument(
        "--against", type=Path, metavar="TREE", help="compare with another tree of this project"
    )
    parser.add_argument("--rounds", type=int, help="5, or 11 pairs of turns with --against")
    parser.add_argument("--millions", type=int, nargs="+", default=[4, 64])
    parser.add_argument("--memory-of", metavar="CODEC", help="print only the extra memory of one codec")
    options = parser.parse_args()
    options.rounds = options.rounds or (11 if options.against else 5)
    torch.set_num_threads(1)
    if options.isa:
        os.environ[instruction_set.VARIABLE] = options.isa
    isa, suffix = instruction_set.choose(), f"-{options.isa}" if options.isa else ""
    if options.memory_of:
        print(extra_memory(options.memory_of))
        return
    if options.against:
        gains = against(options.against, options.isa, options.rounds)
        if options.save:
            save(
                f"codecs-against{suffix}", {"instruction_set": isa, "rounds": options.rounds, "sizes": gains}
            )
        return
    started = time.time()
    result: dict[str, Any] = {
        "implementation": kernels.available()[0],
        "instruction_set": isa,
        "rounds": options.rounds,
        "sizes": {},
    }
    for millions in options.millions:
        x = half_rectified(millions << 20)
        copy = memcpy_seconds(x)
        print(f"\n{millions}M float32, memcpy {x.numel() * 4 / copy / 1e9:.1f} GB/s, one thread")
        print(f"{'codec':40}{'encode':>22}{'decode':>22}{'two threads':>16}")
        rows: dict[str, Any] = {"memcpy_gbps": x.numel() * 4 / copy / 1e9}
        result["sizes"][f"{millions}M"] = rows
        for spec in (*TARGETS, *OTHERS):
            row = rows[spec] = measure(spec, x, options.rounds)
            goal = TARGETS.get(spec)
            print(
                f"{spec:40}{row['encode']:8.3f}{f'  (>= {goal[0]})' if goal else '':14}"
                f"{row['decode']:8.3f}{f'  (>= {goal[1]})' if goal else '':14}"
                f"{row['encode_two_threads']:8.2f}{row['decode_two_threads']:8.2f}",
                flush=True,
            )
        rows["ms_over_topk"] = over_topk(x)
        print(f"ms encode is {rows['ms_over_topk']:.1f} times as fast as with torch.topk  (>= 25)")
    result["extra_memory"] = {spec: in_fresh_process(spec) for spec in TARGETS}
    result["round_trip_4096_us"] = {spec: round_trip_microseconds(spec) for spec in TARGETS}
    print("\nextra memory of encode, a share of the input (<= 0.5); microseconds for 4,096 elements (< 60)")
    for spec in TARGETS:
        print(f"{spec:40}{result['extra_memory'][spec]:8.3f}{result['round_trip_4096_us'][spec]:8.1f}")
    result["seconds"] = round(time.time() - started)
    if options.save:
        save(f"codecs{suffix}", result)


if __name__ == "__main__":
    main()
