"""Whole sections of `ems` in one compiled call: the bytes of the reference, from every instruction set."""

import gc
import weakref

import pytest
import torch

import cutlayer
from cutlayer.codecs.entropy.section_shape import SectionShape
from cutlayer.codecs.entropy.trial_rows import trial_rows
from cutlayer.codecs.kernels import dispatch as kernels

pytestmark = pytest.mark.skipif("native" not in kernels.available(), reason="no compiled kernels were built")

# One lane; a few; some; a block of 32 lanes and one of a single lane.
SAMPLES = (1, 3, 13, 33)


def maps(samples: int, signed: bool = False, channels: int = 8, side: int = 32) -> torch.Tensor:
    x = torch.randn(samples, channels, side, side, generator=torch.Generator().manual_seed(samples))
    x = x + 0.7 * x.roll(1, -1) + 0.5 * x.roll(1, -2) + 0.4 * x.roll(1, 1)
    return x if signed else x.relu()


@pytest.mark.parametrize(
    "spec", ["ems:bpe=1.0", "ems:bpe=5.0", "ems:error=0.05", "ems:error=0.05,transform=dct"]
)
@pytest.mark.parametrize("samples", SAMPLES)
def test_every_instruction_set_gives_the_same(samples: int, spec: str) -> None:
    from cutlayer import _native

    x, codec = maps(samples, signed=samples == 13), cutlayer.codec(spec)
    found = {}
    try:
        for name in ("generic", "avx2", "avx512"):
            if _native.force_instruction_set(name):
                frame = codec.encode(x)
                found[name] = frame, cutlayer.decode(frame)
    finally:
        _native.force_instruction_set(None)
    frame, decoded = found["generic"]
    for name, (other, result) in found.items():
        assert other == frame, name
        assert torch.equal(result, decoded), name


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        ("ems:bpe=1.0", (3, 4, 16, 16)),
        ("ems:bpe=0.2", (2, 3, 9, 5)),
        ("ems:bpe=9.0", (2, 3, 9, 5)),
        ("ems:error=0.0003,values=bfloat16", (2, 3, 9, 12)),
        ("ems:step=0.02", (700,)),
        ("ems:levels=30,scope=sample", (3, 40)),
        ("ems:bpe=2.0,transform=auto", (3, 3, 17, 8)),
        ("ems:error=0.02,transform=dct,values=float32", (2, 5, 9, 16)),
        # Blocks in planes of powers of two, whose predictions are made many planes at a time.
        ("ems:error=0.0004,transform=dct,values=float32", (2, 2, 32, 32)),
        ("ems:bpe=4.0,transform=dct", (5, 3, 16, 16)),
        ("ems:bpe=6.0,transform=dct", (20, 3, 8, 8)),
    ],
)
@pytest.mark.parametrize("kind", ["signed", "relu", "ties", "zeros"])
def test_one_call_gives_the_bytes_of_the_reference(spec: str, shape: tuple[int, ...], kind: str) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(5))
    x = {"signed": x, "relu": x.relu(), "ties": (2 * x).round(), "zeros": 0 * x}[kind]
    codec = cutlayer.codec(spec)
    with kernels.using("reference"):
        expected = codec.encode(x)
        decoded = cutlayer.decode(expected)
    with kernels.using("native"):
        assert codec.encode(x) == expected
        assert torch.equal(cutlayer.decode(expected), decoded)


def test_positions_of_trial_rows_outlive_the_cache_that_made_them() -> None:
    """Who encodes batches of many sizes drops the oldest from the cache: their positions are still read."""
    x = torch.randn(16, 32, 32, 32, generator=torch.Generator().manual_seed(0)).relu_()
    shape = SectionShape(x.numel(), 32, 32, 32)
    codec = cutlayer.codec("ems:bpe=1.0")
    frame = codec.encode(x)
    positions = trial_rows(shape).where
    assert positions is not None, "so large a section is tried on a part"
    alive = weakref.ref(positions)
    del positions
    trial_rows.cache_clear()
    gc.collect()
    assert alive() is not None
    assert codec.encode(x) == frame
