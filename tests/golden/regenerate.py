"""Write the golden frames anew. Only for a change of the format, with a new version number in FORMAT.md.

python tests/golden/regenerate.py
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from cases import cases

import cutlayer
from cutlayer.codecs.kernels import dispatch as kernels

if __name__ == "__main__":
    here = Path(__file__).parent
    with kernels.using("reference"):
        for name, (spec, x) in cases().items():
            (here / name).write_bytes(cutlayer.codec(spec).encode(x))
    print(f"{len(cases())} frames written to {here}")
