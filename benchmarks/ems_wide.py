"""`ems` on wide feature maps at low rates: this tree against another one, in one run.

    python benchmarks/ems_wide.py --against ../before                print the table
    python benchmarks/ems_wide.py --against ../before --isa avx2 --save   and keep it in results

`--against` is a checkout of another commit with its own `.venv` (`make install`). A process for each tree
works in turn, so that both see the same changes of the machine's speed; the least CPU time of each counts,
with one thread. Channels are mixed from an eighth as many planes of noise, with noise added, behind a ReLU.
`used` is the share of the budget that a frame takes, `error` the squared error over the squared elements.
"""

import argparse
import json
import subprocess
import sys
import time
import timeit
from functools import partial
from pathlib import Path
from typing import Any

MAPS = (
    (64, 64, 8),
    (128, 128, 8),
    (256, 50, 8),
    (256, 64, 7),
    (256, 128, 7),
    (256, 500, 4),
    (512, 64, 7),
    (512, 128, 7),
)
RATES = (0.1, 0.2, 0.32, 0.5, 1.0, 2.0)
HERE = Path(__file__).parent
ROUNDS = 3


def worker(isa: str) -> None:
    """Answer requests on standard input: a map and a rate in; seconds, share of the budget, error out."""
    import torch

    import cutlayer
    from cutlayer import _native

    if isa and not _native.force_instruction_set(isa):
        sys.exit(f"this processor has no {isa}")
    torch.set_num_threads(1)
    tensors: dict[tuple[int, ...], torch.Tensor] = {}
    for line in sys.stdin:
        channels, samples, side, rate = json.loads(line)
        what = (channels, samples, side)
        if what not in tensors:
            tensors = {what: elements(*what)}
        x, codec = tensors[what], cutlayer.codec(f"ems:bpe={rate}")
        frame, out = codec.encode(x), torch.empty_like(x)
        taken = [
            min(timeit.repeat(work, number=1, repeat=8, timer=time.process_time))
            for work in (partial(codec.encode, x), partial(cutlayer.decode, frame, out=out))
        ]
        error = float((cutlayer.decode(frame) - x).square().sum() / x.square().sum())
        print(json.dumps([*taken, 8 * len(frame) / x.numel() / rate, error]), flush=True)


def elements(channels: int, samples: int, side: int) -> Any:
    """Channels that depend on each other."""
    import torch

    generator = torch.Generator().manual_seed(0)
    base = torch.randn(samples, channels // 8, side, side, generator=generator)
    mix = torch.randn(channels, channels // 8, generator=generator) / (channels // 8) ** 0.5
    noise = torch.randn(samples, channels, side, side, generator=generator)
    return torch.relu(torch.einsum("nchw,kc->nkhw", base, mix) + 0.5 * noise - 0.5)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", type=Path, help="a checkout of another commit, with its .venv")
    parser.add_argument("--isa", default="", help="generic, avx2 or avx512; by default the processor's best")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/ems_wide.json")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options.isa)
    if options.against is None:
        parser.error("--against is needed")
    trees = {
        name: subprocess.Popen(
            [root / ".venv" / "bin" / "python", __file__, "--worker", "--isa", options.isa],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, root in (("before", options.against.resolve()), ("now", HERE.parent))
    }
    rows = []
    print(
        "| channels, samples, side | bits | encode, ms: before, now, times as long | decode "
        "| used: before, now | error: before, now |"
    )
    print("|---|---|---|---|---|---|")
    for what, rate in [(m, r) for m in MAPS for r in RATES]:
        found: dict[str, list[float]] = {}
        for _ in range(ROUNDS):
            for name, tree in trees.items():
                assert tree.stdin
                assert tree.stdout
                print(json.dumps([*what, rate]), file=tree.stdin, flush=True)
                got = json.loads(tree.stdout.readline())
                last = found.get(name, got)
                found[name] = [min(last[0], got[0]), min(last[1], got[1]), *got[2:]]
        before, now = found["before"], found["now"]
        rows.append({"map": what, "bpe": rate, "before": before, "now": now})
        encode, decode = (
            f"{1e3 * before[i]:.1f}, {1e3 * now[i]:.1f}, {now[i] / before[i]:.2f}" for i in range(2)
        )
        used, error = (f"{before[i]:.3f}, {now[i]:.3f}" for i in (2, 3))
        print(f"| {what} | {rate} | {encode} | {decode} | {used} | {error} |", flush=True)
    if options.save:
        from cutlayer.training.provenance import provenance

        path = HERE / "results" / "ems_wide.json"
        known = json.loads(path.read_text()) if path.is_file() else {}
        columns = ["encode seconds", "decode seconds", "share of the budget", "error"]
        known[options.isa or "best"] = {"provenance": provenance(0), "columns": columns, "rows": rows}
        path.write_text(json.dumps(known, indent=1) + "\n")
    return None


if __name__ == "__main__":
    main()
