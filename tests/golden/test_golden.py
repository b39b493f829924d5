"""Frames that were written once must be written again, and read, for ever."""

import importlib.util
from pathlib import Path

import pytest
import torch

import cutlayer
from cutlayer.codecs.kernels import dispatch as kernels
from cutlayer.codecs.registry import BUILT_IN
from cutlayer.codecs.tensor_set.frame_set import join_frames, split_frames
from cutlayer.codecs.tensor_set.integers import encode_integers

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("golden_cases", HERE / "cases.py")
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
CASES = _module.cases()
INTEGERS = _module.integers()


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


@pytest.mark.parametrize("implementation", kernels.available())
@pytest.mark.parametrize("name", INTEGERS)
def test_golden_integers(name: str, implementation: str) -> None:
    with kernels.using(implementation):
        assert encode_integers(INTEGERS[name]) == (HERE / name).read_bytes()
        assert torch.equal(cutlayer.decode((HERE / name).read_bytes()), torch.from_numpy(INTEGERS[name]))


def test_golden_set() -> None:
    golden = (HERE / "v1-set.cuts").read_bytes()
    frames = {name: bytes(frame) for name, frame in split_frames(golden).items()}
    assert list(frames) == ["mask", "hidden"]
    assert frames["mask"] == (HERE / "v1-integers-bool.cut").read_bytes()
    assert frames["hidden"] == (HERE / "v1-ms-2-signed.cut").read_bytes()
    assert join_frames(frames) == golden


def test_there_is_a_golden_frame_for_every_codec_and_none_too_many() -> None:
    assert {path.name for path in HERE.glob("*.cut")} == {*CASES, *INTEGERS}
    assert {spec.partition(":")[0] for spec, _ in CASES.values()} == set(BUILT_IN)
