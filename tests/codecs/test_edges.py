"""Exact answers where a careless implementation goes wrong."""

import math

import numpy as np
import pytest
import torch

import cutlayer
from cutlayer.codecs.kernels import dispatch as kernels

IMPLEMENTATIONS = kernels.available()
ALL = [
    "dense",
    "qu:bits=3",
    "sp:ratio=0.5",
    "ms:ratio=0.5,bits=2",
    "rt:ratio=0.5,alpha=0.3,scope=tensor",
    "km:bits=2",
    "ems:bpe=1.0",
    "ems:levels=3,rounding=floor,scope=sample",
]


@pytest.fixture(params=IMPLEMENTATIONS, autouse=True)
def implementation(request: pytest.FixtureRequest):
    with kernels.using(request.param):
        yield request.param


def through(spec: str, x: torch.Tensor) -> torch.Tensor:
    return cutlayer.decode(cutlayer.codec(spec).encode(x))


@pytest.mark.parametrize("spec", ALL)
def test_all_zeros(spec: str) -> None:
    assert torch.equal(through(spec, torch.zeros(3, 50)), torch.zeros(3, 50))


@pytest.mark.parametrize("spec", [*ALL, "rk:ratio=0"])
def test_one_element(spec: str) -> None:
    assert torch.equal(through(spec, torch.tensor([2.5])), torch.tensor([2.5]))
    assert torch.equal(through(spec, torch.tensor(-2.5)), torch.tensor(-2.5))


@pytest.mark.parametrize(
    "spec", ["dense", "qu:bits=1", "qu:bits=16", "km:bits=3", "ms:ratio=0,bits=2", "sp:ratio=0"]
)
def test_all_equal(spec: str) -> None:
    x = torch.full((4, 33), 0.1)
    assert torch.equal(through(spec, x), x)


def test_ties_across_the_threshold_first_win() -> None:
    x = torch.tensor([1.0, 5.0, 1.0, 1.0, 1.0, 7.0])
    assert through("sp:ratio=0.5", x).tolist() == [1, 5, 0, 0, 0, 7]
    # The ties that lose are filtered values just at Topmin: the highest level, never the mark.
    third = float(np.float32(2 / 3))
    assert through("ms:ratio=0.5,bits=2", x).tolist() == [1, 5, third, third, third, 7]


@pytest.mark.parametrize("d", [100, 1000, 70000, 200000])
def test_ties_win_in_order_across_blocks_and_chunks(d: int) -> None:
    k = d // 2
    decoded = through("sp:ratio=0.5", torch.ones(d))
    assert torch.equal(decoded, (torch.arange(d) < k).float())


def test_kth_value_zero() -> None:
    x = torch.tensor([0.0, 3.0, 0.0, 0.0, 1.0, 0.0])
    for bits in (1, 2, 5):
        assert torch.equal(through(f"ms:ratio=0.5,bits={bits}", x), x)


@pytest.mark.parametrize("rounding", ["floor", "nearest"])
@pytest.mark.parametrize("bits", range(1, 17))
def test_a_value_one_ulp_below_the_threshold_is_not_a_mark(bits: int, rounding: str) -> None:
    top = np.float32(1.7)
    below = np.nextafter(top, np.float32(0))
    x = torch.tensor([top, below, 0.0, 0.0])
    decoded = through(f"ms:ratio=0.75,bits={bits},rounding={rounding}", x)
    n = 2**bits - 1
    assert decoded[0] == float(top)
    assert decoded[1] == np.float32(float(top) * (n - 1) / n)


def test_subnormals() -> None:
    tiny = float(np.float32(1e-45))
    x = torch.tensor([0.0, tiny, 3 * tiny, 2 * tiny, -tiny])
    assert torch.equal(through("sp:ratio=0", x), x)
    assert through("ms:ratio=0.8,bits=2", x).tolist() == [0, tiny, 3 * tiny, 2 * tiny, -tiny]
    assert torch.equal(through("qu:bits=2", x[:4]), x[:4])


def test_largest_floats() -> None:
    most = float(np.finfo(np.float32).max)
    x = torch.tensor([most, -most, most / 3, 0.0])
    assert through("ms:ratio=0.5,bits=2", x)[2] == np.float32(most / 3)
    assert torch.isfinite(through("qu:bits=4", x)).all()
    assert torch.isfinite(through("km:bits=2", x)).all()


def test_negative_data_keeps_signs() -> None:
    x = torch.tensor([-3.0, 1.0, -2.0, 0.9, -0.1, -1.9])
    decoded = through("ms:ratio=0.5,bits=3", x)
    assert decoded[0] == -3
    assert decoded[2] == -2
    assert decoded[5] == np.float32(-1.9)
    step = 1.9 / 7
    np.testing.assert_allclose(decoded[[1, 3, 4]], [3 * step, 3 * step, 0], rtol=1e-6)


def test_negative_zero_is_not_negative_data() -> None:
    x = torch.tensor([-0.0, 1.0, 2.0, 3.0])
    frame = cutlayer.codec("ms:ratio=0.5,bits=2").encode(x)
    assert not cutlayer.inspect(frame).signed
    assert math.copysign(1, cutlayer.decode(frame)[0]) == 1


@pytest.mark.parametrize("bits", range(1, 17))
@pytest.mark.parametrize("signed", [False, True])
def test_all_widths(bits: int, signed: bool) -> None:
    x = torch.linspace(-1 if signed else 0, 1, 1000)
    top = through(f"ms:ratio=0.9,bits={bits}", x)
    worst = 0.95 / (2**bits - 1) if bits > 1 else 1.0
    assert (x - top).abs().max() <= worst * 1.0001
    uniform = through(f"qu:bits={bits}", x)
    assert (x - uniform).abs().max() <= (2 if signed else 1) / (2**bits - 1) / 2 * 1.0001


def test_k_equals_d_is_lossless() -> None:
    x = torch.randn(5, 7, 11)
    for spec in (
        "sp:ratio=0",
        "ms:ratio=0,bits=1",
        "ms:ratio=0,bits=7",
        "rt:ratio=0,alpha=0.5",
        "rk:ratio=0",
    ):
        assert torch.equal(through(spec, x), x), spec


def test_last_partial_batch() -> None:
    codec = cutlayer.codec("ms:ratio=0.99,bits=2")
    for batch in (128, 3, 1):
        x = torch.rand(batch, 3, 5, 5)
        assert cutlayer.decode(codec.encode(x)).shape == x.shape


def test_a_sample_alone_does_not_depend_on_its_batch() -> None:
    x = torch.randn(3, 4, 9, 9)
    for spec in (
        "ms:scope=sample,ratio=0.9",
        "sp:scope=sample",
        "qu:bits=5,scope=sample",
        "km:bits=3,scope=sample",
        "ems:levels=4,scope=sample",
        "ems:error=0.02,scope=sample",
    ):
        codec = cutlayer.codec(spec)
        whole = cutlayer.decode(codec.encode(x))
        for i in range(3):
            assert torch.equal(cutlayer.decode(codec.encode(x[i : i + 1]))[0], whole[i]), spec
