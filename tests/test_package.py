"""`import cutlayer` is light, and yet all public names are there."""

import subprocess
import sys

import pytest

import cutlayer


def test_every_public_name_is_there() -> None:
    for name in cutlayer.__all__:
        assert getattr(cutlayer, name) is not None
        assert name in dir(cutlayer)


def test_any_other_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="module 'cutlayer' has no attribute 'codek'"):
        _ = cutlayer.codek


def test_pytorch_is_loaded_with_the_first_name_that_needs_it() -> None:
    program = (
        "import sys, cutlayer\n"
        "assert cutlayer.CutlayerError and cutlayer.__version__\n"
        "assert not {'torch', 'numpy', 'grpc', 'pydantic'} & set(sys.modules)\n"
        "from cutlayer import codec, decode\n"
        "import numpy\n"
        "assert decode(codec('ms').encode(numpy.ones(9, 'float32')), like='numpy').all()\n"
        "assert 'torch' not in sys.modules and 'grpc' not in sys.modules\n"
        "assert decode(codec('ms').encode(numpy.ones(9, 'float32'))).all() and 'torch' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_it_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "cutlayer", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, f"cutlayer {cutlayer.__version__}\n")
