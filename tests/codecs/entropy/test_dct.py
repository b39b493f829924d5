"""The DCT and PCA of `ems`: fewer bits for smooth maps, with rates and errors kept."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import cutlayer
from cutlayer.codecs import reference
from cutlayer.codecs.entropy.dct import BLOCK, COSINES, coefficient_shape
from cutlayer.codecs.entropy.layout import DCT
from cutlayer.codecs.entropy.pca import ROTATION_UNIT, channel_rotation
from cutlayer.codecs.entropy.section_shape import section_shape
from cutlayer.codecs.kernels import dispatch as kernels
from cutlayer.errors import ParameterError
from cutlayer.split import relative_error

NAMES = ["plain", "signed", "odd", "3-d"]
Maps = dict[str, torch.Tensor]
Smooth = Callable[..., torch.Tensor]


def coding(frame: bytes) -> int:
    """The first byte of the first section, behind its size."""
    payload = frame[cutlayer.inspect(frame).header_bytes :]
    return payload[next(i for i, byte in enumerate(payload) if byte < 0x80) + 1]


def encode(x: torch.Tensor, how: str) -> bytes:
    return cutlayer.codec(f"ems:{how}").encode(x)


def test_the_matrix_is_that_of_the_dct() -> None:
    for u in range(BLOCK):
        for i in range(BLOCK // 2):
            exact = math.sqrt(1 / 8) if u == 0 else math.cos(math.pi * u * (2 * i + 1) / 16) / 2
            assert COSINES[u, i] == round(exact * 65536) / 65536


@pytest.mark.parametrize("channels", [1, 2, 5, 32])
def test_a_rotation_keeps_lengths_and_gathers_energy(smooth: Smooth, channels: int) -> None:
    x = smooth(6, channels, 16, 16)
    found = (
        channel_rotation(x.flatten(), section_shape(tuple(x.shape), 1), float(x.abs().max())).astype(
            np.float64
        )
        / ROTATION_UNIT
    )
    assert np.abs(found @ found.T - np.eye(channels)).max() < 1e-3
    energy = (found @ x.transpose(0, 1).flatten(1).double().numpy()) ** 2
    if channels > 3:  # the maps are mixtures of three planes
        assert energy[:3].sum() > 0.98 * energy.sum()


@pytest.mark.parametrize("shape", [(3, 5, 8, 8), (2, 3, 9, 17), (4, 13, 30)])
def test_inverse_of_forward_is_the_identity(shape: tuple[int, ...]) -> None:
    x, where = torch.randn(shape, generator=torch.Generator().manual_seed(1)), section_shape(shape, 1)
    axes = channel_rotation(x.flatten(), where, 4.0)
    y = reference.ems_dct_forward(x.flatten(), where, axes)
    assert y.numel() == coefficient_shape(where).d
    back = torch.empty(x.numel())
    reference.ems_dct_inverse(y, where, axes, -10.0, 10.0, back)
    assert relative_error(x.flatten(), back) < 1e-7
    reference.ems_dct_inverse(y, where, axes, -0.5, 0.25, back)
    assert (float(back.min()), float(back.max())) == (-0.5, 0.25)


@pytest.mark.parametrize("error", [0.1, 0.01, 0.0005])
@pytest.mark.parametrize("name", NAMES)
def test_an_error_is_kept_and_used(maps: Maps, name: str, error: float) -> None:
    x = maps[name]
    frame = encode(x, f"error={error},transform=dct")
    assert coding(frame) == DCT
    assert 0.9 * error < relative_error(x, cutlayer.decode(frame)) <= error


@pytest.mark.parametrize("bpe", [0.2, 0.5, 2.0])
@pytest.mark.parametrize("name", ["plain", "signed", "odd"])
def test_a_rate_is_kept_and_used(maps: Maps, name: str, bpe: float) -> None:
    x = maps[name]
    frame = encode(x, f"bpe={bpe},transform=dct")
    assert coding(frame) == DCT
    assert 0.9 * bpe < 8 * len(frame) / x.numel() <= bpe
    assert relative_error(x, cutlayer.decode(frame)) < 0.5


def test_smooth_maps_take_fewer_bits(plain: torch.Tensor) -> None:
    assert len(encode(plain, "error=0.02,transform=dct")) < 0.7 * len(encode(plain, "error=0.02"))


@pytest.mark.parametrize("name", ["smooth", "rough"])
def test_auto_takes_the_better_one(plain: torch.Tensor, name: str) -> None:
    x = plain if name == "smooth" else torch.randn(9, 5, 16, 16, generator=torch.Generator().manual_seed(2))
    by_error = {how: encode(x, f"error=0.05,transform={how}") for how in ("none", "dct", "auto")}
    assert by_error["auto"] == min(by_error["none"], by_error["dct"], key=len)
    by_rate = {how: encode(x, f"bpe=0.8,transform={how}") for how in ("none", "dct", "auto")}
    left = {how: relative_error(x, cutlayer.decode(frame)) for how, frame in by_rate.items()}
    assert left["auto"] == min(left.values())
    assert (coding(by_error["auto"]) == DCT) == (name == "smooth")


@pytest.mark.parametrize(
    "x", [torch.rand(500), torch.rand(20, 30), torch.rand(4, 3, 7, 30), torch.rand(1, 200, 8, 8)]
)
def test_without_planes_or_with_too_many_channels_elements_are_coded(x: torch.Tensor) -> None:
    for how in ("error=0.05", "bpe=3.0"):
        assert encode(x, f"{how},transform=dct") == encode(x, f"{how},transform=auto") == encode(x, how)


@pytest.mark.parametrize("x", [torch.zeros(2, 3, 8, 8), torch.ones(2, 3, 8, 9), -torch.ones(1, 1, 16, 16)])
@pytest.mark.parametrize("how", ["error=0.1", "bpe=8.0"])
def test_edges(how: str, x: torch.Tensor) -> None:
    y = cutlayer.decode(encode(x, f"{how},values=float32,transform=dct"))
    assert relative_error(x, y) <= 0.1 if x.any() else torch.equal(x, y)


@pytest.mark.parametrize("how", ["error=0.1", "bpe=8.0"])
def test_tiny_values(plain: torch.Tensor, how: str) -> None:
    x = plain[:1] * 1e-30
    assert relative_error(x, cutlayer.decode(encode(x, f"{how},values=float32,transform=dct"))) <= 0.1


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("values", ["float16", "float32", "bfloat16"])
def test_values_at_the_end_of_their_type(plain: torch.Tensor, values: str, dtype: torch.dtype) -> None:
    unit = plain / plain.max()
    x = (unit * 65000).to(dtype)
    y = cutlayer.decode(encode(x, f"error=0.01,transform=dct,values={values}"))
    assert relative_error(x.float(), y.float()) <= 0.01
    huge = (unit * 1e38).clamp(max=1e38)
    y = cutlayer.decode(encode(huge, "error=0.01,transform=dct,values=float32"))
    assert torch.isfinite(y).all()


def test_an_error_that_coefficients_cannot_reach_is_reached_without_them(plain: torch.Tensor) -> None:
    frame = encode(plain, "error=1e-8,transform=dct,values=float32")
    assert relative_error(plain, cutlayer.decode(frame)) <= 1e-8


def test_levels_and_transforms_exclude_each_other() -> None:
    with pytest.raises(ParameterError, match="needs bpe= or error="):
        cutlayer.codec("ems:levels=3,transform=dct")
    with pytest.raises(ParameterError, match="one of none, dct, auto"):
        cutlayer.codec("ems:bpe=1,transform=fft")
    assert str(cutlayer.codec("ems:bpe=1.0,transform=auto")) == "ems:bpe=1.0,transform=auto"


def test_a_sample_does_not_depend_on_its_batch_mates(smooth: Smooth) -> None:
    codec = cutlayer.codec("ems:error=0.05,transform=dct,scope=sample")
    x = smooth(3, 2, 64, 64)
    before = cutlayer.decode(codec.encode(x))
    assert relative_error(x, before) <= 0.05
    x[1:] *= 100
    assert torch.equal(cutlayer.decode(codec.encode(x))[0], before[0])


@pytest.mark.skipif("native" not in kernels.available(), reason="no compiled kernels were built")
@pytest.mark.parametrize("name", NAMES)
def test_the_compiled_dct_gives_the_bits_of_the_reference(maps: Maps, name: str) -> None:
    from cutlayer import _native
    from cutlayer.codecs.kernels import native

    x, where = maps[name].flatten(), section_shape(tuple(maps[name].shape), 1)
    axes = channel_rotation(x, where, float(x.abs().max()))
    y, back = reference.ems_dct_forward(x, where, axes), torch.empty_like(x)
    reference.ems_dct_inverse(y, where, axes, -0.1, 1.0, back)
    try:
        for isa in ("generic", "avx2", "avx512"):
            if _native.force_instruction_set(isa):
                found = torch.empty_like(x)
                native.ems_dct_inverse(y.numpy(), where, axes, -0.1, 1.0, found.numpy())
                assert native.ems_dct_forward(x.numpy(), where, axes).tobytes() == y.numpy().tobytes(), isa
                assert found.numpy().tobytes() == back.numpy().tobytes(), isa
    finally:
        _native.force_instruction_set(None)


@pytest.mark.skipif("native" not in kernels.available(), reason="no compiled kernels were built")
@pytest.mark.parametrize("name", NAMES)
def test_every_instruction_set_gives_the_bytes_of_the_reference(maps: Maps, name: str) -> None:
    from cutlayer import _native

    x = maps[name][:2, ..., :9, :15]
    x = (x if x.dim() == 3 else x[:, :2]).contiguous()  # the reference decodes element by element
    with kernels.using("reference"):
        frame = encode(x, "error=0.03,transform=dct")
        decoded = cutlayer.decode(frame).numpy().tobytes()
    try:
        for isa in ("generic", "avx2", "avx512"):
            if _native.force_instruction_set(isa):
                assert encode(x, "error=0.03,transform=dct") == frame, isa
                assert cutlayer.decode(frame).numpy().tobytes() == decoded, isa
    finally:
        _native.force_instruction_set(None)


@settings(max_examples=30, deadline=None)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(8, 20), st.integers(8, 20)),
    st.sampled_from(["error=0.2", "error=0.004", "bpe=1.5", "bpe=6.0"]),
    st.sampled_from(["dct", "auto"]),
    st.booleans(),
)
def test_round_trips(
    smooth: Smooth, shape: tuple[int, int, int, int], how: str, transform: str, signed: bool
) -> None:
    x = smooth(*shape, seed=sum(shape))
    x = x if signed else x.relu()
    frame = encode(x, f"{how},transform={transform}")
    y = cutlayer.decode(frame)
    assert y.shape == x.shape
    if coding(frame) == DCT:
        assert x.min() <= y.min()
        assert y.max() <= x.max()
    if how.startswith("error"):
        assert relative_error(x, y) <= float(how[6:])


def test_the_number_of_threads_does_not_show(smooth: Smooth) -> None:
    x = smooth(20, 8, 32, 32).relu()
    before = torch.get_num_threads()
    found = set()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            frame = encode(x, "error=0.03,transform=auto")
            found.add((frame, cutlayer.decode(frame).numpy().tobytes()))
    finally:
        torch.set_num_threads(before)
    assert len(found) == 1
