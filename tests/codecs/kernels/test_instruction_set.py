"""CUTLAYER_ISA chooses the kernels, refuses what is not there, and changes no byte."""

import os
import subprocess
import sys

import numpy as np
import pytest

import cutlayer
from cutlayer.codecs.kernels import instruction_set
from cutlayer.errors import CutlayerError
from cutlayer.tools import doctor

_native = pytest.importorskip("cutlayer._native")

PROGRAM = """
import hashlib
import numpy as np
import cutlayer
from cutlayer import _native
x = np.sin(np.arange(2 * 70_001, dtype=np.float32) ** 2).reshape(2, -1)
frames = [cutlayer.codec(text).encode(x) for text in ("ms", "sp", "qu:bits=3", "rt", "rk", "km:bits=3")]
print(_native.instruction_set(), hashlib.sha256(b"".join(frames)).hexdigest())
"""


def run(isa: str) -> tuple[str, str]:
    environment = {**os.environ, "CUTLAYER_ISA": isa}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    used, digest = done.stdout.split()
    return used, digest


def test_every_set_of_this_processor_is_chosen_by_name_and_gives_the_same_bytes() -> None:
    found = [run(isa) for isa in _native.instruction_sets()]
    assert [used for used, _ in found] == _native.instruction_sets()
    assert len({digest for _, digest in found}) == 1


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch):
    best = _native.instruction_sets()[0]
    instruction_set.choose.cache_clear()
    yield monkeypatch
    monkeypatch.delenv("CUTLAYER_ISA", raising=False)
    instruction_set.choose.cache_clear()
    assert _native.choose_instruction_set(best)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sse9", "CUTLAYER_ISA=sse9 is no instruction set; choose one of .*generic"),
        ("neon" if "avx2" in _native.instruction_sets() else "avx2", "this processor does not have it"),
    ],
)
def test_a_set_that_is_not_there_is_refused_by_codecs_and_told_by_the_doctor(fresh, name, said) -> None:
    fresh.setenv("CUTLAYER_ISA", name)
    with pytest.raises(CutlayerError, match=said):
        cutlayer.codec("ms").encode(np.ones((1, 2), np.float32))
    finding = next(each for each in doctor._kernels() if each.what == "instruction set")
    assert finding.verdict == "problem"


def test_without_kernels_there_is_nothing_to_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    instruction_set.refuse_without_kernels()
    monkeypatch.setenv("CUTLAYER_ISA", "avx2")
    with pytest.raises(CutlayerError, match="installed without them"):
        instruction_set.refuse_without_kernels()
