"""Without compiled kernels, the reference implementation is used, and one warning says so."""

import subprocess
import sys

import torch

import cutlayer
from cutlayer.codecs.kernels import dispatch as kernels

PROGRAM = """
import sys, warnings
sys.modules["cutlayer._native"] = None  # makes the import of the extension fail
import torch, cutlayer
from cutlayer.codecs.kernels import dispatch as kernels
assert kernels.available() == ["reference"]
x = torch.arange(1000).float().view(10, 100)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    frames = [cutlayer.codec(spec).encode(x) for spec in ("ms", "rt", "qu", "km")]
    cutlayer.decode(frames[0])
assert [w.category for w in caught] == [RuntimeWarning] and "compiler" in str(caught[0].message)
print(b"".join(frames).hex())
"""


def test_the_reference_takes_over() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    x = torch.arange(1000).float().view(10, 100)
    with kernels.using(kernels.available()[0]):
        frames = [cutlayer.codec(spec).encode(x) for spec in ("ms", "rt", "qu", "km")]
    assert bytes.fromhex(done.stdout) == b"".join(frames)
