"""Golden frames in a process without PyTorch: encoded, inspected, decoded. Prints digests of what they hold.

Where PyTorch is installed, `blocked` makes its import fail. `make wheel` runs this in an empty environment.
"""

import hashlib
import importlib.util
import json
import sys
from pathlib import Path

if "blocked" in sys.argv:
    sys.modules["torch"] = None  # type: ignore[assignment]

import numpy as np

import cutlayer
from cutlayer.codecs.tensor_set.integers import encode_integers
from cutlayer.errors import CutlayerError

golden = Path(__file__).parent
spec = importlib.util.spec_from_file_location("cases", golden / "cases.py")
cases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cases)
found = {}
for name, (codec, x) in cases.cases().items():
    frame = cutlayer.codec(codec).encode(x)
    assert frame == (golden / name).read_bytes(), name
    info = cutlayer.inspect(frame)
    assert (info.shape, info.dtype) == (x.shape, "float32")
    y = cutlayer.decode(frame)
    assert isinstance(y, np.ndarray)
    assert y.dtype == np.float32
    assert y.shape == x.shape
    out = np.empty_like(y)
    assert cutlayer.decode(frame, out=out) is out
    assert np.array_equal(out, y)
    found[name] = hashlib.sha256(y.tobytes()).hexdigest()
for name, x in cases.integers().items():
    frame = (golden / name).read_bytes()
    assert encode_integers(x) == frame, name
    y = cutlayer.decode(frame)
    assert (y.dtype, cutlayer.inspect(frame).dtype) == (x.dtype, x.dtype.name)
    assert np.array_equal(x, y)
    out = np.empty_like(x)
    assert np.array_equal(cutlayer.decode(frame, out=out), x)
    found[name] = hashlib.sha256(y.tobytes()).hexdigest()
for dtype in ("float16", "float64"):
    x = np.linspace(-1, 1, 24).astype(dtype).reshape(2, 3, 4)
    y = cutlayer.decode(cutlayer.codec("dense").encode(x))
    assert y.dtype == dtype
    assert np.allclose(x, y)


class Own(cutlayer.Codec):
    name = "own"

    def payload_bytes(self, shape, signed=False):
        return 1

    def pack(self, x, seed):
        return b"x"


def refused(work):
    try:
        work()
    except CutlayerError as error:
        return str(error)


said = [
    refused(lambda: cutlayer.decode(frame, like="torch")),
    refused(lambda: Own().encode(x)),
    refused(lambda: cutlayer.CutLayer),
]
assert "torch" not in {m for m, module in sys.modules.items() if module is not None}
print(json.dumps([found, said]))
