"""Frames and values of the PyTorch reference, for a machine that has no PyTorch to compare with.

    python tests/arm/vectors.py FOLDER

Writes FOLDER/vectors.npz: tensors, and for each codec and tensor the frame and what it decodes to.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

import cutlayer
from cutlayer.codecs.kernels import dispatch as kernels

PLAIN = (
    *(f"ms:bits={bits},rounding={how}" for bits in (1, 2, 3, 5, 9) for how in ("floor", "nearest")),
    *(f"ms:ratio={ratio},values={values}" for ratio in (0.5, 0.9) for values in ("float16", "bfloat16")),
    *(f"qu:bits={bits}" for bits in (1, 2, 3, 4, 5, 8, 11)),
    *(f"qu:bits={bits},rounding=stochastic,seed=3" for bits in (2, 7)),
    *(f"sp:ratio={ratio},store={store}" for ratio in (0.3, 0.9, 0.99) for store in ("mask", "keys")),
    "sp:ratio=0.9,values=float16",
    "sp:ratio=0.9,scope=sample,values=bfloat16",
    "rt:seed=4",
    "rt:scope=tensor,draw=coin,alpha=0.3",
    "rt:scope=tensor,alpha=0.01",
    "rk",
    "km:bits=4",
    "dense:dtype=float16",
    "dense:dtype=bfloat16",
)
ENTROPY = (
    "ems:levels=4",
    "ems:levels=40,scope=sample",
    "ems:ratio=0.97,levels=3,rounding=nearest",
    "ems:step=0.4,rounding=stochastic",
    "ems:bpe=1.0",
    "ems:error=0.05",
    "ems:bpe=1.0,transform=dct",
)


def tensors() -> dict[str, Any]:
    """Noise: with and without signs, with ties, and of a length that no vector divides."""
    random = np.random.default_rng(7)
    noise = random.standard_normal((2, 70_001)).astype(np.float32)
    maps = random.standard_normal((3, 8, 16, 16)).astype(np.float32)
    smooth = np.cumsum(np.cumsum(maps, axis=2), axis=3) / 8
    return {
        "signed": noise,
        "rectified": np.maximum(noise, 0),
        "ties": np.round(noise * 3),
        "short": noise[:1, :67].copy(),
        "maps": np.maximum(maps, 0),
        "smooth": smooth.astype(np.float32),
    }


def main() -> None:
    """See the module."""
    out = Path(sys.argv[1])
    found: dict[str, Any] = {}
    with kernels.using("reference"):
        for name, x in tensors().items():
            found[f"x/{name}"] = x
            for text in ENTROPY if x.ndim == 4 else PLAIN:
                frame = cutlayer.codec(text).encode(x)
                found[f"frame/{name}/{text}"] = np.frombuffer(frame, np.uint8)
                found[f"y/{name}/{text}"] = np.asarray(cutlayer.decode(frame, like="numpy"))
    np.savez(out / "vectors.npz", **found)


if __name__ == "__main__":
    main()
