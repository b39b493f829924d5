"""`ems` on activations of transformers: bits at the error of 4-bit quantization by channel, and the loss.

    python benchmarks/tokens.py --root ~/data             print the tables
    python benchmarks/tokens.py --root ~/data --save      and write them to benchmarks/results/tokens.json

The models and batches are those of benchmarks/token_activations.py, which trains for some minutes; they are
kept in --models. The loss is that of the rest of the model on decoded activations. Nothing here passes or
fails.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from token_activations import load_or_train  # type: ignore[import-not-found]
from torch import Tensor, nn

import cutlayer
from cutlayer.split import relative_error
from cutlayer.training.provenance import provenance

RESULTS = Path(__file__).parent / "results" / "tokens.json"
BITS = 4
WAYS = {
    "plain": "layout=maps",
    "channels": "layout=tokens,rotation=none",
    "tokens": "layout=tokens",
    "scales, channels": "layout=tokens,rotation=none,scales=channel",
    "scales": "layout=tokens,scales=channel",
}
RATES = (1.0, 2.0, 3.0)
SAMPLES = {"gpt": 64, "vit": 128}


def by_channel(x: Tensor, bits: int = BITS) -> tuple[Tensor, float]:
    """Uniform quantization between the smallest and the largest element of each channel; bits an element."""
    tokens = x.flatten(0, -2)
    lo, hi = tokens.aminmax(dim=0)
    step = ((hi - lo) / (2**bits - 1)).clamp(min=1e-30)
    return (((x - lo) / step).round() * step + lo), bits + 64 / len(tokens)


def channel_error(x: Tensor, y: Tensor) -> float:
    """The squared error of each channel relative to its variance, in the mean of channels."""
    off = (x - y).flatten(0, -2).square().mean(0)
    return float((off / x.flatten(0, -2).var(0)).mean())


def coded(spec: str, x: Tensor) -> tuple[Tensor, float]:
    """What a codec makes of an activation, and its bits an element, header included."""
    frame = cutlayer.codec(spec).encode(x)
    return cutlayer.decode(frame), 8 * len(frame) / x.numel()


def measure(x: Tensor, loss: Callable[[Tensor], float] | None) -> dict[str, Any]:
    """All rows of one activation."""

    def row(found: tuple[Tensor, float]) -> dict[str, float]:
        y, bits = found
        errors = {"bits": bits, "error": relative_error(x, y), "channel_error": channel_error(x, y)}
        return errors | ({"loss": loss(y)} if loss else {})

    uniform = row(by_channel(x))
    rows: dict[str, Any] = {"shape": list(x.shape), "uniform": uniform}
    if loss:
        rows["loss"] = loss(x)
    rows["same_error"] = {
        way: row(coded(f"ems:error={uniform['error']:.9f},{how}", x))
        for way, how in WAYS.items()
        if "scales" not in way
    }
    # With scales, the error is that of scaled channels.
    rows["same_error"] |= {
        way: row(coded(f"ems:error={uniform['channel_error']:.9f},{how}", x))
        for way, how in WAYS.items()
        if "scales" in way
    }
    rows["same_rate"] = {
        f"{rate:g}": {way: row(coded(f"ems:bpe={rate},{how}", x)) for way, how in WAYS.items()}
        for rate in RATES
    }
    return rows


def activations(
    name: str, root: Path, out: Path
) -> dict[str, tuple[Tensor, Callable[[Tensor], float] | None]]:
    """Activations by place, and the loss as a function of what arrives there."""
    model, x, y = load_or_train(name, root, out)
    x, y = x[: SAMPLES[name]], y[: SAMPLES[name]]

    @torch.no_grad()
    def loss(block: int, arrived: Tensor) -> float:
        return float(nn.functional.cross_entropy(model.behind(arrived, block).flatten(0, -2), y.flatten()))

    with torch.no_grad():
        found = [a.contiguous() for a in model.activations(x)]
    places: dict[str, Any] = {f"block {b}": (found[b - 1], partial(loss, b)) for b in (1, 2, 4)}
    places["block 1, 16 samples"] = (found[0][:16].contiguous(), None)
    places["one token a sample"] = (found[1].flatten(0, 1)[::4].contiguous(), None)  # [N, C]
    return places


def table(rows: dict[str, Any]) -> str:
    """Bits at the error of 4-bit quantization by channel."""
    lines = [
        "| activation | 4 bits by channel: error, by channel | plain `ems` | tokens, `rotation=none` "
        "| tokens | at the error by channel: `scales=channel`, `rotation=none` | `scales=channel` |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, r in rows.items():
        bits = [f"{r['same_error'][way]['bits']:.2f}" for way in WAYS]
        shape = " x ".join(map(str, r["shape"]))
        errors = f"{r['uniform']['error']:.4f}, {r['uniform']['channel_error']:.4f}"
        lines.append(f"| {name} ({shape}) | {errors} | {' | '.join(bits)} |")
    return "\n".join(lines)


def loss_table(rows: dict[str, Any]) -> str:
    """The change of the loss at equal rates."""
    lines = [
        "| activation | bits | 4 bits by channel | plain `ems` | tokens, `rotation=none` | tokens "
        "| `scales=channel`, `rotation=none` | `scales=channel` |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, r in rows.items():
        if "loss" not in r:
            continue
        for rate, ways in r["same_rate"].items():
            changes = [r["uniform"]["loss"] - r["loss"], *(ways[way]["loss"] - r["loss"] for way in WAYS)]
            lines.append(f"| {name} | {rate} | {' | '.join(f'{change:+.4f}' for change in changes)} |")
    return "\n".join(lines)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True, help="the folder with the data sets")
    parser.add_argument("--models", type=Path, default=Path("tokens"), help="where models are kept")
    parser.add_argument("--only", choices=["gpt", "vit"], help="one of the models")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/tokens.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = {}
    for name in [options.only] if options.only else ["gpt", "vit"]:
        for place, (x, loss) in activations(name, options.root, options.models).items():
            rows[f"{name}, {place}"] = measure(x, loss)
            print(f"{name}, {place}: done", flush=True)
    print(table(rows))
    print(loss_table(rows))
    if options.save:
        RESULTS.write_text(json.dumps({"provenance": provenance(0), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
