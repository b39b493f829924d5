import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import cutlayer
from cutlayer.errors import FrameError, InputError, MessageError
from cutlayer.remote.packing import pack_tensor, unpack_tensor

DENSE = cutlayer.codec("dense")
DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_integers_come_back_as_they_were(dtype: torch.dtype) -> None:
    ends = (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    ends = (max(ends[0], -(2**60)), min(ends[1], 2**60))
    for x in (
        torch.tensor([[*ends], [0, 1]], dtype=dtype),
        torch.ones(3, 2, 5, dtype=dtype),
        torch.tensor(1, dtype=dtype),
    ):
        found = unpack_tensor(pack_tensor(x, DENSE, 0), x.numel())
        assert found.dtype == dtype
        assert torch.equal(found, x)


def test_integers_take_as_few_bits_as_their_range_needs() -> None:
    labels = torch.arange(1000) % 10 + 500
    assert len(pack_tensor(labels, DENSE, 0)) == 15 + 4 + 500
    assert len(pack_tensor(torch.full((1000,), 7), DENSE, 0)) == 15 + 4


def test_floats_are_frames() -> None:
    x = torch.randn(4, 5)
    assert torch.equal(unpack_tensor(pack_tensor(x, DENSE, 0), 20), x)
    with pytest.raises(FrameError):
        unpack_tensor(pack_tensor(x, DENSE, 0), 19)


def test_what_cannot_be_sent_is_refused() -> None:
    for x in (torch.zeros(2, dtype=torch.complex64), torch.zeros(0, dtype=torch.int64)):
        with pytest.raises(InputError):
            pack_tensor(x, DENSE, 0)
    with pytest.raises(InputError, match="64 bits"):
        pack_tensor(torch.tensor([-(2**63), 2**63 - 1]), DENSE, 0)


def test_sizes_are_checked_before_memory_is_taken() -> None:
    packed = bytearray(pack_tensor(torch.full((2, 2), 7), DENSE, 0))
    packed[-8:] = b"\xff" * 8  # its dimensions
    with pytest.raises(MessageError, match="at most 1000 elements"):
        unpack_tensor(bytes(packed), 1000)


@given(st.data())
def test_damaged_integers_are_refused_or_read(data: st.DataObject) -> None:
    packed = bytearray(pack_tensor(torch.tensor([[1, -5, 300]]), DENSE, 0))
    packed[data.draw(st.integers(4, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = unpack_tensor(bytes(packed[: data.draw(st.integers(4, len(packed)))]), 100)
    except MessageError:
        return
    assert 0 < found.numel() <= 100
