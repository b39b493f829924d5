"""Any float tensor goes in; the same dtype and shape come out."""

import numpy as np
import pytest
import torch

import cutlayer
from cutlayer.codecs.kernels import dispatch as kernels
from cutlayer.errors import (
    DtypeError,
    EmptyTensorError,
    InputError,
    NonFiniteError,
    OutputError,
    ParameterError,
    RangeError,
)

SPECS = [
    "dense",
    "qu:bits=4",
    "sp:ratio=0.9",
    "ms:ratio=0.9,bits=2",
    "rt:ratio=0.9",
    "rk:ratio=0.9",
    "km:bits=3",
]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtype_and_shape_survive(spec: str, dtype: torch.dtype) -> None:
    x = torch.randn(3, 4, 5, dtype=torch.float64).to(dtype)
    y = cutlayer.decode(cutlayer.codec(spec).encode(x))
    assert (y.dtype, y.shape) == (dtype, x.shape)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_travel_exactly(dtype: torch.dtype) -> None:
    x = torch.randn(1000).to(dtype)
    name = str(dtype).removeprefix("torch.")
    for spec in ("dense", f"dense:dtype={name}", "sp:ratio=0", f"sp:ratio=0,values={name}"):
        assert torch.equal(cutlayer.decode(cutlayer.codec(spec).encode(x)), x)


@pytest.mark.parametrize("spec", SPECS)
def test_memory_format_does_not_matter(spec: str) -> None:
    codec = cutlayer.codec(spec)
    x = torch.randn(2, 6, 8, 8)
    expected = codec.encode(x)
    assert codec.encode(x.to(memory_format=torch.channels_last)) == expected
    assert codec.encode(x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)) == expected
    assert codec.encode(torch.nn.Parameter(x)) == expected
    assert codec.encode(x.numpy()) == expected


def test_numpy_of_any_kind() -> None:
    codec = cutlayer.codec("ms:ratio=0.5")
    x = np.linspace(-1, 1, 60, dtype=np.float32).reshape(5, 12)
    frozen = x.copy()
    frozen.flags.writeable = False
    for same in (frozen, x.astype(">f4"), np.asfortranarray(x), x[::-1][::-1], x.T.copy().T):
        assert codec.encode(same) == codec.encode(x)
    assert cutlayer.decode(codec.encode(x.astype(np.float64))).dtype == torch.float64
    assert cutlayer.decode(codec.encode(np.array(3, np.float32))).shape == ()


@pytest.mark.parametrize("implementation", kernels.available())
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("at", [0, 77, 199])
def test_non_finite_is_refused(spec: str, bad: float, at: int, implementation: str) -> None:
    x = torch.rand(200)
    x[at] = bad
    with kernels.using(implementation), pytest.raises(NonFiniteError, match=rf"1 of 200 .*\({at},\)"):
        cutlayer.codec(spec).encode(x.view(-1))


def test_what_cannot_be_encoded_says_why() -> None:
    codec = cutlayer.codec("ms")
    with pytest.raises(EmptyTensorError, match=r"\(3, 0\)"):
        codec.encode(torch.empty(3, 0))
    for integers in (torch.arange(5), np.arange(5), torch.tensor([True])):
        with pytest.raises(DtypeError, match="float"):
            codec.encode(integers)
    with pytest.raises(DtypeError, match="list"):
        codec.encode([1.0, 2.0])
    with pytest.raises(DtypeError, match="complex64"):
        codec.encode(torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(InputError, match="sparse"):
        codec.encode(torch.eye(3).to_sparse())


@pytest.mark.parametrize("implementation", kernels.available())
def test_values_that_do_not_fit_are_refused(implementation: str) -> None:
    x = torch.tensor([1.0, 2.0, 70000.0, 3.0])
    with kernels.using(implementation):
        for spec in ("dense:dtype=float16", "sp:ratio=0.5,values=float16", "ms:ratio=0.5,values=float16"):
            with pytest.raises(RangeError, match="float16"):
                cutlayer.codec(spec).encode(x)
        with pytest.raises(RangeError, match="float32"):
            cutlayer.codec("rk:ratio=0.5").encode(torch.full((4,), 3e38))
        with pytest.raises(RangeError, match="float16"):
            cutlayer.codec("rk:ratio=0.5").encode(torch.full((4,), 6e4).half())
        with pytest.raises(RangeError, match="bfloat16 in a float16"):
            cutlayer.codec("ms:ratio=0.5,values=bfloat16").encode(torch.tensor([65504.0, 1.0]).half())
        with pytest.raises(RangeError, match="float32"):
            cutlayer.codec("ms").encode(torch.tensor([1e300], dtype=torch.float64))


def test_out_reuses_memory() -> None:
    x = torch.randn(4, 5)
    frame = cutlayer.codec("sp:ratio=0.5").encode(x)
    out = torch.full((4, 5), 9.0)
    assert cutlayer.decode(frame, out=out) is out
    assert torch.equal(out, cutlayer.decode(frame))
    strided = torch.full((5, 4), 9.0).t()
    assert torch.equal(cutlayer.decode(frame, out=strided), out)
    array = np.zeros((4, 5), np.float32)
    cutlayer.decode(frame, out=array)
    assert np.array_equal(array, out.numpy())
    half = torch.empty(3, dtype=torch.float16)
    assert torch.equal(
        cutlayer.decode(cutlayer.codec("dense").encode(half.fill_(2)), out=half.zero_()), half.fill_(2)
    )


def test_out_must_fit() -> None:
    frame = cutlayer.codec("sp").encode(torch.randn(4, 5))
    for wrong in (torch.empty(5, 4), torch.empty(4, 5, dtype=torch.float64), [0.0]):
        with pytest.raises(OutputError):
            cutlayer.decode(frame, out=wrong)
    with pytest.raises(OutputError, match="gradient"):
        cutlayer.decode(frame, out=torch.empty(4, 5, requires_grad=True))


def test_seeds() -> None:
    codec = cutlayer.codec("rt:ratio=0.9,alpha=0.5")
    x = torch.randn(3, 400)
    assert codec.encode(x) == codec.encode(x, seed=0)
    assert codec.encode(x, seed=1) != codec.encode(x, seed=2)
    assert cutlayer.codec("rt:ratio=0.9,alpha=0.5,seed=5").encode(x) == codec.encode(x, seed=5)
    drawn = [codec.encode(x, generator=torch.Generator().manual_seed(7)) for _ in range(2)]
    assert drawn[0] == drawn[1]
    with pytest.raises(ParameterError, match="both"):
        codec.encode(x, seed=1, generator=torch.Generator())
    for wrong in (-1, 1 << 64, 1.5, True):
        with pytest.raises(ParameterError, match="seed"):
            codec.encode(x, seed=wrong)
