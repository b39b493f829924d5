"""What the golden frames hold: a name, a spec and an array that needs no random generator to make."""

from typing import Any

import numpy as np

SPECS = {
    "dense": "dense",
    "dense-float16": "dense:dtype=float16",
    "dense-bfloat16": "dense:dtype=bfloat16",
    "qu-3": "qu:bits=3",
    "qu-11-sample": "qu:bits=11,scope=sample",
    "qu-4-stochastic": "qu:bits=4,rounding=stochastic,seed=11",
    "sp-mask": "sp:ratio=0.9",
    "sp-keys-float16": "sp:ratio=0.98,values=float16",
    "sp-sample": "sp:ratio=0.9,scope=sample,values=bfloat16",
    "ms-1": "ms:ratio=0.9,bits=1",
    "ms-2": "ms:ratio=0.99,bits=2",
    "ms-2-nearest-float16": "ms:ratio=0.99,bits=2,rounding=nearest,values=float16",
    "ms-3-sample": "ms:ratio=0.95,bits=3,scope=sample",
    "ms-9": "ms:ratio=0.9,bits=9",
    "rt": "rt:ratio=0.9,alpha=0.2,seed=5",
    "rt-coin-keys": "rt:ratio=0.97,alpha=0.3,draw=coin,store=keys,scope=tensor,seed=6",
    "rk": "rk:ratio=0.9,seed=7",
    "km-3": "km:bits=3",
    "km-5-sample": "km:bits=5,scope=sample",
    "ems-4": "ems:levels=4",
    "ems-3-nearest-float32": "ems:ratio=0.97,levels=3,rounding=nearest,values=float32",
    "ems-40-sample": "ems:levels=40,scope=sample",
    "ems-bpe": "ems:bpe=2.5",
    "ems-error-bfloat16": "ems:error=0.03,values=bfloat16",
    "ems-step": "ems:step=0.5",
    "ems-stochastic": "ems:step=0.4,rounding=stochastic,seed=9",
    "ems-stochastic-bpe-sample": "ems:bpe=4.0,rounding=stochastic,scope=sample,seed=10",
    "ems-positions-float16": "ems:ratio=0.9,levels=1,rounding=floor",
    "splitfc": "splitfc:drop=0.5,bpe=4.0,seed=12",
    "fedlite": "fedlite:size=3,clusters=9,groups=2,seed=13",
    "slacc": "slacc:low=2,high=5,groups=2",
    "c3sl": "c3sl:merge=3,keys=14",
    "uq": "uq:step=0.3",
    "uq-bpe": "uq:bpe=2.5",
}


def tensor(signed: bool) -> Any:
    """4 x 3 x 5 x 7 numbers that look random, from integer arithmetic alone."""
    i = np.arange(420, dtype=np.int64)
    mixed = (i * 2654435761 + 12345) % 4294967296
    x = (mixed / 4294967296 * 2 - 1) ** 3 * 4
    x = np.round(x * 1024) / 1024  # exact in float32, and some values tie
    return (x if signed else np.where(x < 0, 0, x)).astype(np.float32).reshape(4, 3, 5, 7)


def planes(signed: bool) -> Any:
    """2 x 2 x 9 x 10 numbers that change slowly, large enough for a transform, from integers alone."""
    sample, channel, y, x = (np.arange(n).reshape(-1, *[1] * (3 - i)) for i, n in enumerate((2, 2, 9, 10)))
    wave = abs((3 * x + 5 * y + 7 * sample * channel + 11 * channel) % 40 - 20) - 8 + (x * y * sample) % 5
    return ((wave if signed else wave.clip(min=0)) / 8).astype(np.float32)


def tokens() -> Any:
    """6 x 13 x 5 numbers with channels of different means and spreads, two of them alike, from integers."""
    i = np.arange(390, dtype=np.int64).reshape(6, 13, 5)
    noise = ((i * 2654435761 + 777) % 4294967296 >> 20) / 2048 - 1
    noise[..., 1] += 2 * noise[..., 0]
    x = noise * np.array([1, 2, 0.25, 4, 0.5]) + np.array([0, 3, -20, 1, 0.125])
    return (np.round(x * 1024) / 1024).astype(np.float32)


def cases() -> dict[str, tuple[str, Any]]:
    """All golden frames by file name."""
    return {
        f"v1-{name}-{kind}.cut": (spec, tensor(kind == "signed"))
        for name, spec in SPECS.items()
        for kind in ("plain", "signed")
    } | {
        "v1-ems-error-dct-plain.cut": ("ems:error=0.02,transform=dct", planes(False)),
        "v1-ems-tokens-channels.cut": ("ems:bpe=4.0,rotation=none", tokens()),
        "v1-ems-tokens-axes.cut": ("ems:error=0.001,layout=tokens,rotation=pca", tokens().reshape(78, 5)),
        "v1-ems-tokens-scales-sample.cut": (
            "ems:step=0.5,layout=tokens,scales=channel,scope=sample",
            tokens().reshape(1, 78, 5),
        ),
        "v1-ems-bpe-dct-signed.cut": ("ems:bpe=12.0,transform=dct,values=float32", planes(True)),
    }


def integers() -> dict[str, Any]:
    """Golden frames of integers by file name."""
    i = np.arange(105).reshape(3, 5, 7)
    return {
        "v1-integers-bool.cut": i % 3 == 0,
        "v1-integers-int64.cut": i * 37 % 101 - 50,
        "v1-integers-uint8-constant.cut": np.full((4,), 200, np.uint8),
    }
