"""Tokens: channels last, with outliers and no neighbours, take fewer bits than as planes."""

import zlib

import numpy as np
import pytest
import torch

import cutlayer
from cutlayer.codecs.entropy.tokens.section import token_shape
from cutlayer.codecs.kernels import dispatch as kernels
from cutlayer.errors import ParameterError, PayloadError
from cutlayer.split import relative_error


def tokens(*shape: int, seed: int = 0) -> torch.Tensor:
    """Correlated channels of different spread, each with a mean of its own, one of them an outlier."""
    generator = torch.Generator().manual_seed(seed)
    c = shape[-1]
    x = torch.randn(*shape[:-1], 6, generator=generator) @ torch.randn(6, c, generator=generator)
    x = x + 0.5 * torch.randn(shape, generator=generator)
    x = x * torch.exp(torch.randn(c, generator=generator)) + 2 * torch.randn(c, generator=generator)
    x[..., c // 2] += 40
    return x


X = tokens(32, 16, 24)
ALL = ["layout=tokens,rotation=none", "layout=tokens,rotation=pca", "layout=tokens"]


def through(spec: str, x: torch.Tensor) -> tuple[torch.Tensor, float]:
    frame = cutlayer.codec(spec).encode(x)
    return cutlayer.decode(frame), 8 * len(frame) / x.numel()


@pytest.mark.parametrize("shape", [(32, 16, 24), (300, 24), (40, 4, 5, 12)])
@pytest.mark.parametrize("how", ALL)
def test_an_error_and_a_rate_are_kept(how: str, shape: tuple[int, ...]) -> None:
    x = tokens(*shape)
    for error in (0.05, 0.001, 1e-5):
        y, _ = through(f"ems:error={error},{how}", x)
        assert y.shape == x.shape
        assert 0.5 * error < relative_error(x, y) <= error
    y, bits = through(f"ems:bpe=3,{how}", x)
    assert 2.5 < bits <= 3
    assert relative_error(x, y) < 0.01


def test_three_dimensions_with_signs_are_recognised() -> None:
    spec = cutlayer.codec("ems:error=0.001")
    assert spec.encode(X) == cutlayer.codec("ems:error=0.001,layout=tokens").encode(X)
    for x in (X.relu(), X.view(32, 4, 4, 24), X.view(-1, 24)):
        assert spec.encode(x) == cutlayer.codec("ems:error=0.001,layout=maps").encode(x)


@pytest.mark.parametrize("shape", [(64, 16, 32), (1000, 32)])
def test_tokens_take_fewer_bits_than_planes(shape: tuple[int, ...]) -> None:
    x = tokens(*shape)
    plain, new, rotated = (
        through(f"ems:error=0.001,{how}", x)[1]
        for how in ("layout=maps", "layout=tokens,rotation=none", "layout=tokens")
    )
    assert new < 0.85 * plain
    assert rotated < 0.8 * new  # six directions hold most of the energy


def test_scales_spare_small_channels() -> None:
    x = tokens(64, 16, 32)
    variance = x.flatten(0, 1).var(0)

    def worst(spec: str) -> float:
        y, _ = through(spec, x)
        return float(((x - y).square().flatten(0, 1).mean(0) / variance).max())

    assert worst("ems:bpe=2,layout=tokens,scales=channel") < 0.2 * worst("ems:bpe=2,layout=tokens")
    y, _ = through("ems:error=0.01,layout=tokens,scales=channel", x)
    by_channel = (x - y).square().flatten(0, 1).mean(0) / variance
    assert 0.005 < float(by_channel.mean()) < 0.011
    assert float(by_channel.max()) < 0.02


def test_each_sample_alone() -> None:
    x = tokens(3, 80, 12)
    y, _ = through("ems:error=0.01,layout=tokens,scope=sample", x)
    z, _ = through("ems:error=0.01,layout=tokens,scope=sample", x[:1])
    assert torch.equal(y[0], z[0])


@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1e-8, 1e20, 1e36])
def test_ends_of_the_number_line(scale: float) -> None:
    for how in (*ALL, "layout=tokens,scales=channel"):
        y, _ = through(f"ems:bpe=3,values=float32,{how}", X[:8] * scale)
        assert torch.isfinite(y).all()


def test_tensors_without_variance_and_small_ones() -> None:
    for x in (torch.zeros(16, 8, 4), torch.full((16, 8, 4), -3.0)):
        for how in (*ALL, "layout=tokens,scales=channel"):
            torch.testing.assert_close(through(f"ems:bpe=3,{how}", x)[0], x, rtol=1e-3, atol=0)
    for x in (X[:1, :1], -torch.ones(1, 1)):
        assert through("ems:bpe=12,layout=tokens", x)[0].shape == x.shape


@pytest.mark.skipif("native" not in kernels.available(), reason="no compiled kernels were built")
@pytest.mark.parametrize("how", [*ALL, "layout=tokens,scales=channel"])
def test_both_implementations_give_the_same(how: str) -> None:
    x = tokens(6, 16, 12)
    with kernels.using("reference"):
        frame = cutlayer.codec(f"ems:bpe=3,{how}").encode(x)
        expected = cutlayer.decode(frame)
    assert cutlayer.codec(f"ems:bpe=3,{how}").encode(x) == frame
    assert torch.equal(cutlayer.decode(frame), expected)


def test_half_tensors_stay_within_their_type() -> None:
    x = (tokens(32, 16, 24) / 100).clamp(-1, 1).mul(65504).half()
    y, _ = through("ems:bpe=3,values=bfloat16", x)
    assert torch.isfinite(y).all()


def test_shapes() -> None:
    assert token_shape((100,), 1) is None
    assert token_shape((63, 8), 1) is None  # too few tokens
    assert token_shape((640, 1), 1) is None  # no channels to tell apart
    found = token_shape((10, 4, 5, 8), 1)
    assert found is not None
    assert (found.channels, found.height, found.width, found.samples) == (8, 1, 20, 10)


@pytest.mark.parametrize(
    "spec",
    [
        "ems:layout=tokens,levels=3",
        "ems:layout=tokens,rounding=stochastic",
        "ems:layout=tokens,transform=dct",
        "ems:layout=maps,rotation=pca",
        "ems:layout=maps,scales=channel",
    ],
)
def test_what_does_not_go_together_is_refused(spec: str) -> None:
    with pytest.raises(ParameterError, match="tokens"):
        cutlayer.codec(spec)


def forged(frame: bytes, at: int, value: bytes, shape: bytes = b"") -> bytes:
    changed = bytearray(frame)
    changed[at : at + len(value)] = value
    changed[22 : 22 + len(shape)] = shape
    changed[4:8] = zlib.crc32(changed[8:]).to_bytes(4, "little")
    return bytes(changed)


def test_forged_sections_are_refused() -> None:
    frame = cutlayer.codec("ems:bpe=6,layout=tokens,rotation=pca,scales=channel").encode(tokens(20, 6, 10))
    coding = cutlayer.inspect(frame).header_bytes + 2  # behind the section's size
    assert frame[coding] == 3
    assert frame[coding + 1] & 1  # there are scales
    for at, value in (
        (1, b"\x17"),  # more axes than channels
        (2, b"\x01"),
        (3, np.float32(np.nan).tobytes()),
        (3, np.float32(-1).tobytes()),
        (7, np.float32(0).tobytes()),
        (7, np.float32(2.0**41).tobytes()),
    ):
        with pytest.raises(PayloadError, match="axes"):
            cutlayer.decode(forged(frame, coding + at, value))
    with pytest.raises(PayloadError, match="not coded as tokens"):
        cutlayer.decode(forged(frame, 0, b"", bytes([20, 60, 1])))
    for at in range(coding, len(frame), 7):
        try:
            found = cutlayer.decode(forged(frame, at, bytes([frame[at] ^ 0xA5])))
        except PayloadError:
            continue
        assert torch.isfinite(found).all()
