"""Codecs work without PyTorch, and give the same bytes and values as with it."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import cutlayer
from cutlayer.errors import DtypeError, ParameterError

pytest.importorskip("cutlayer._native")
GOLDEN = Path(__file__).parents[1] / "golden"

# Codecs of which parts are plain NumPy.
STEERED = ["ems:rounding=stochastic", "ems:layout=tokens", "uq", "c3sl", "fedlite", "slacc", "splitfc"]
PROGRAM = GOLDEN / "without_torch.py"


@pytest.fixture(scope="module")
def without() -> tuple[dict[str, str], list[str]]:
    command = [sys.executable, str(PROGRAM), "blocked"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found, said = json.loads(done.stdout)
    return found, said


def test_golden_frames_decode_to_the_same_values(without) -> None:
    found, _ = without
    assert set(found) == {path.name for path in GOLDEN.glob("*.cut")}
    for name, digest in found.items():
        y = cutlayer.decode((GOLDEN / name).read_bytes())
        assert isinstance(y, torch.Tensor)
        assert hashlib.sha256(y.numpy().tobytes()).hexdigest() == digest, name


def test_what_needs_pytorch_says_so_in_one_line(without) -> None:
    for told in without[1]:
        assert "needs torch, which is not installed" in told
        assert "pip install 'cutlayer[train]'" in told
        assert "\n" not in told


def test_the_program_says_so_too() -> None:
    program = "import sys; sys.modules['torch'] = None; sys.argv = ['cutlayer', *sys.argv[1:]]\n"
    program += "from cutlayer.cli import main; main()"
    command = [sys.executable, "-c", program, "train", "--epochs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert "needs torch" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_kernels_too_nothing_works_and_one_line_says_what_to_do() -> None:
    program = (
        "import sys; sys.modules['torch'] = sys.modules['cutlayer._native'] = None\n"
        "import numpy, cutlayer\n"
        "try:\n    cutlayer.codec('ms').encode(numpy.ones(9, 'float32'))\n"
        "except cutlayer.CutlayerError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "without its compiled kernels" in done.stdout
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize(
    "spec", ["dense", "ms", "qu:bits=4", "ems", "dense:dtype=bfloat16", "sp:values=float16", *STEERED]
)
def test_arrays_and_tensors_give_the_same_frames_and_values(spec: str) -> None:
    x = torch.randn(3, 4, 8, 8, generator=torch.Generator().manual_seed(1))
    codec = cutlayer.codec(spec)
    frame = codec.encode(x)
    assert codec.encode(x.numpy()) == frame
    y = cutlayer.decode(frame, like="numpy")
    assert isinstance(y, np.ndarray)
    assert np.array_equal(y, cutlayer.decode(frame).numpy())


def test_bfloat16_is_float32_in_numpy() -> None:
    x = torch.randn(5, 7).bfloat16()
    y = cutlayer.decode(cutlayer.codec("ms").encode(x), like="numpy")
    assert y.dtype == np.float32
    assert np.array_equal(y, cutlayer.decode(cutlayer.codec("ms").encode(x)).float().numpy())


class Foreign:
    """An array of another library, that shows its memory by DLPack and nothing else."""

    def __init__(self, x: np.ndarray) -> None:
        self.x = x
        self.asked = 0

    def __dlpack__(self, **options: object) -> object:
        self.asked += 1
        return self.x.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.x.__dlpack_device__()


def test_dlpack_is_taken_without_a_copy() -> None:
    from cutlayer.codecs.tensors import source

    x = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    given = Foreign(x)
    assert np.shares_memory(source(given).flat, x)
    assert cutlayer.codec("ms").encode(given) == cutlayer.codec("ms").encode(x)
    assert given.asked == 2
    tensor = torch.from_numpy(x)
    assert source(tensor).flat.data_ptr() == x.ctypes.data
    with pytest.raises(DtypeError, match="DLPack"):
        cutlayer.codec("ms").encode([1.0, 2.0])
    with pytest.raises(DtypeError, match="int64"):
        cutlayer.codec("ms").encode(Foreign(np.arange(5)))


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ParameterError, match="'torch' or 'numpy'"):
        cutlayer.decode(cutlayer.codec("ms").encode(np.ones(9, np.float32)), like="jax")
