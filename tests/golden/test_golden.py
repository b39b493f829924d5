"""Frames that were written once must be written again, and read, for ever."""

import importlib.util
from pathlib import Path

import pytest
import torch

import cutlayer
from cutlayer.codecs.kernels import dispatch as kernels
from cutlayer.codecs.registry import BUILT_IN

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("golden_cases", HERE / "cases.py")
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
CASES = _module.cases()


@pytest.mark.parametrize("implementation", kernels.available())
@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, implementation: str) -> None:
    spec, x = CASES[name]
    golden = (HERE / name).read_bytes()
    with kernels.using(implementation):
        assert cutlayer.codec(spec).encode(x) == golden
        decoded = cutlayer.decode(golden)
    with kernels.using("reference"):
        assert torch.equal(cutlayer.decode(golden), decoded)


def test_there_is_a_golden_frame_for_every_codec_and_none_too_many() -> None:
    assert {path.name for path in HERE.glob("*.cut")} == set(CASES)
    assert {spec.partition(":")[0] for spec, _ in CASES.values()} == set(BUILT_IN)
