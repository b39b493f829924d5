"""Integers and booleans as frames: exact, in as few bits as their range needs, and safe to decode."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import cutlayer
from cutlayer.codecs.kernels.float_types import INTEGERS, IntegerType
from cutlayer.codecs.tensor_set.integers import encode_integers
from cutlayer.errors import DtypeError, EmptyTensorError, FrameError, HeaderError, PayloadError


@given(
    kind=st.sampled_from(INTEGERS),
    shape=st.lists(st.integers(1, 5), max_size=4),
    data=st.data(),
)
def test_every_value_comes_back(kind: IntegerType, shape: list[int], data: st.DataObject) -> None:
    dtype = kind.in_torch
    low, high = (0, 1) if dtype is torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    assert (kind.lowest, kind.largest) == (low, high)
    count = int(torch.Size(shape).numel())
    values = data.draw(st.lists(st.integers(low, high), min_size=count, max_size=count))
    x = torch.tensor(values, dtype=dtype).reshape(shape)
    y = cutlayer.decode(encode_integers(x))
    assert y.dtype == dtype
    assert torch.equal(x, y)
    assert encode_integers(x.numpy()) == encode_integers(x)
    z = cutlayer.decode(encode_integers(x), like="numpy")
    assert z.dtype == kind.in_numpy
    assert (z == x.numpy()).all()


@pytest.mark.parametrize(
    ("x", "payload"),
    [
        (torch.ones(3, 5, dtype=torch.int64), 0),
        (torch.tensor([True, False] * 20), 5),
        (torch.arange(1000, 1008), 3),
        (torch.arange(256).repeat(2), 512),
        (torch.tensor([-(2**63), 2**63 - 1]), 16),
        (torch.arange(40000) % 3, 10000),  # in more than one chunk
    ],
)
def test_bits_follow_the_range(x: torch.Tensor, payload: int) -> None:
    frame = encode_integers(x)
    found = cutlayer.inspect(frame)
    assert (found.payload_bytes, found.codec, found.shape) == (payload, "integers", tuple(x.shape))
    assert found.header_bytes <= 22 + 9 + 5 * x.dim()
    assert torch.equal(cutlayer.decode(frame), x)
    out = torch.zeros_like(x)
    assert cutlayer.decode(frame, out=out) is out
    assert torch.equal(out, x)


def test_what_is_no_integer_or_nothing_is_refused() -> None:
    with pytest.raises(DtypeError, match="float32 without loss"):
        encode_integers(torch.rand(3))
    with pytest.raises(EmptyTensorError):
        encode_integers(torch.zeros(0, dtype=torch.int64))


def changed(frame: bytes, at: int, value: int) -> bytes:
    """The frame with one other byte, and the checksum that goes with it."""
    import zlib

    data = bytearray(frame)
    data[at] = value
    data[4:8] = zlib.crc32(data[8:]).to_bytes(4, "little")
    return bytes(data)


def test_malformed_frames_are_refused() -> None:
    frame = encode_integers(torch.tensor([3, 4, 5], dtype=torch.uint8))
    side = 22 + 1  # one dimension
    with pytest.raises(PayloadError, match="3 integers of 9 bits take 4 bytes"):
        cutlayer.decode(changed(frame, side + 8, 9))
    with pytest.raises(PayloadError, match="out of the range"):
        cutlayer.decode(changed(frame, side, 254))
    with pytest.raises(PayloadError, match="behind the last integer"):
        cutlayer.decode(changed(frame, len(frame) - 1, 0xFF))
    with pytest.raises(HeaderError, match=r"a frame of integers cannot hold float32"):
        cutlayer.decode(changed(frame, 10, 0))
    with pytest.raises(FrameError):
        cutlayer.decode(changed(frame, 11, 1))


@given(at=st.integers(8, 60), value=st.integers(0, 255))
def test_any_damage_is_a_frame_error_or_another_tensor(at: int, value: int) -> None:
    frame = encode_integers(torch.arange(-7, 90, dtype=torch.int16))
    try:
        found = cutlayer.decode(changed(frame, at, value), max_elements=1000)
    except FrameError:
        return
    assert found.numel() <= 1000
