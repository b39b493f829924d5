"""Write the golden frames anew. Only for a change of the format, with a new version number in FORMAT.md.

python tests/golden/regenerate.py
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from cases import cases, integers

import cutlayer
from cutlayer.codecs.kernels import dispatch as kernels
from cutlayer.codecs.tensor_set.frame_set import join_frames
from cutlayer.codecs.tensor_set.integers import encode_integers

if __name__ == "__main__":
    here = Path(__file__).parent
    with kernels.using("reference"):
        for name, (spec, x) in cases().items():
            (here / name).write_bytes(cutlayer.codec(spec).encode(x))
        frames = {name: encode_integers(x) for name, x in integers().items()}
        for name, frame in frames.items():
            (here / name).write_bytes(frame)
    # Several tensors under names: a boolean mask, and a float tensor under a codec.
    together = {"mask": frames["v1-integers-bool.cut"], "hidden": (here / "v1-ms-2-signed.cut").read_bytes()}
    (here / "v1-set.cuts").write_bytes(join_frames(together))
    print(f"{len(cases()) + len(frames) + 1} frames written to {here}")
