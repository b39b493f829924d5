"""What unbiased rounding and a commitment cost beside plain `ems`, in one run.

    python benchmarks/low_rates.py             print the table
    python benchmarks/low_rates.py --save      and write results/low_rates.json

Tensors are those of a client's step in the testbed (`cutlayer reproduce convergence --scale testbed`): 50
samples at each cut of a network of width 64. Gradients are signed, and most elements are near zero. Work is
measured by turns, in CPU time of one thread, and the least of each counts. Nothing passes or fails.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

import cutlayer
from cutlayer.training.provenance import provenance

RESULTS = Path(__file__).parent / "results" / "low_rates.json"
CUTS = {"shallow": (64, 15, 15), "medium": (256, 7, 7), "deep": (256, 3, 3)}
SAMPLES = 50
ROUNDS = 40
SMASHED, DOWN, COMMITMENT = "ems:bpe=0.32", "ems:bpe=1.6", 0.03


def smashed_data(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Smoothed noise behind a ReLU."""
    x = torch.randn((SAMPLES, *shape), generator=generator)
    for dimension, weight in ((-1, 0.7), (-2, 0.5), (1, 0.4)):
        x = x + weight * x.roll(1, dimension)
    return x.relu().contiguous()


def gradient(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Cubes of normal numbers: heavy tails, as gradients have."""
    return torch.randn((SAMPLES, *shape), generator=generator).pow(3) * 1e-4


def least(*work: Callable[[], object]) -> list[float]:
    """The least CPU seconds of each, measured by turns."""
    found = [float("inf")] * len(work)
    for _ in range(ROUNDS):
        for number, call in enumerate(work):
            started = time.process_time()
            call()
            found[number] = min(found[number], time.process_time() - started)
    return found


def crossing(x: Tensor, commitment: float) -> Callable[[], None]:
    """A step through a cut layer: encode, decode, and the gradient back."""
    layer = cutlayer.CutLayer(SMASHED, commitment=commitment)
    back = torch.ones_like(x)

    def step() -> None:
        layer(x.requires_grad_()).backward(back)
        x.grad = None

    return step


def measure(cut: str) -> dict[str, object]:
    """Times as multiples of plain `ems`."""
    generator = torch.Generator().manual_seed(0)
    x, g = smashed_data(CUTS[cut], generator), gradient(CUTS[cut], generator)
    plain, unbiased = (cutlayer.codec(f"{DOWN}{how}") for how in ("", ",rounding=stochastic"))
    frames = [codec.encode(g) for codec in (plain, unbiased)]
    out = torch.empty_like(g)
    encode = least(lambda: plain.encode(g), lambda: unbiased.encode(g))
    decode = least(*(partial(cutlayer.decode, frame, out=out) for frame in frames))
    step = least(crossing(x, 0.0), crossing(x, COMMITMENT))
    return {
        "cut": cut,
        "elements": x.numel(),
        "bits": [8 * len(frame) / g.numel() for frame in frames],
        "unbiased, encode": encode[1] / encode[0],
        "unbiased, decode": decode[1] / decode[0],
        "commitment, encode and decode": step[1] / step[0],
    }


def main() -> None:
    """Measure, print, and save if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = [measure(cut) for cut in CUTS]
    names = ("unbiased, encode", "unbiased, decode", "commitment, encode and decode")
    print(f"{'times plain ems':16}" + "".join(f"{name:>32}" for name in names))
    for row in found:
        print(f"{row['cut']:16}" + "".join(f"{row[name]:32.2f}" for name in names))
    if arguments.save:
        text = json.dumps({"provenance": provenance(0), "rows": found}, indent=2)
        RESULTS.write_text(text + "\n")


if __name__ == "__main__":
    main()
