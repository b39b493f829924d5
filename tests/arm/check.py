"""Compares this processor's kernels, of every instruction set that it has, with `vectors.npz`, bit for bit.

Runs where there is only NumPy. Prints how many frames were equal.
"""

import sys
from pathlib import Path

import numpy as np

import cutlayer
from cutlayer import _native

SETS = ("generic", "neon", "avx2", "avx512")


def main() -> None:
    """See the module."""
    wanted = dict(np.load(Path(sys.argv[1]) / "vectors.npz"))
    tensors = {name[2:]: x for name, x in wanted.items() if name.startswith("x/")}
    best, told = _native.instruction_set(), []
    for isa in SETS:
        if not _native.force_instruction_set(isa):
            continue
        frames = 0
        for name in (name for name in wanted if name.startswith("frame/")):
            _, which, text = name.split("/", 2)
            frame = cutlayer.codec(text).encode(tensors[which])
            if frame != wanted[name].tobytes():
                sys.exit(f"{isa}: {text} of {which} gives other bytes than the reference")
            y = cutlayer.decode(wanted[name].tobytes())
            if y.tobytes() != wanted[f"y/{which}/{text}"].tobytes():
                sys.exit(f"{isa}: {text} of {which} decodes to other values than the reference")
            frames += 1
        told.append(f"{isa}: {frames} frames")
    print(f"{', '.join(told)} equal to the reference; {best} is the best here")


if __name__ == "__main__":
    main()
