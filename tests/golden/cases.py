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


def cases() -> dict[str, tuple[str, Any]]:
    """All golden frames by file name."""
    return {
        f"v1-{name}-{kind}.cut": (spec, tensor(kind == "signed"))
        for name, spec in SPECS.items()
        for kind in ("plain", "signed")
    } | {
        "v1-ems-error-dct-plain.cut": ("ems:error=0.02,transform=dct", planes(False)),
        "v1-ems-bpe-dct-signed.cut": ("ems:bpe=12.0,transform=dct,values=float32", planes(True)),
    }
