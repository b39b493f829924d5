"""Targets as bytes: integers in the fewest bits, floats as frames; what others send is checked."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cutlayer.errors import CutlayerError, DataError, FrameError, MessageError
from cutlayer.tasks import Floats, Integers
from cutlayer.tasks import base as labels


@given(st.integers(1, 1000), st.data())
def test_labels_take_the_fewest_whole_bits(classes: int, data: st.DataObject) -> None:
    given_ = data.draw(st.lists(st.integers(0, classes - 1), max_size=50))
    packed = labels.pack(np.array(given_, dtype=np.int64), classes)
    bits = max(1, math.ceil(math.log2(classes)))
    assert len(packed) == math.ceil(len(given_) * bits / 8)
    assert labels.unpack(packed, len(given_), classes).tolist() == given_


def test_labels_from_others_are_checked() -> None:
    with pytest.raises(MessageError, match="take 2 bytes"):
        labels.unpack(b"\x00", 4, 10)
    with pytest.raises(MessageError, match="classes 0 to 9"):
        labels.unpack(b"\xf0", 2, 10)


@pytest.mark.parametrize(("values", "bits"), [(2, 1), (65, 7), (256, 8)])
def test_integers_of_any_shape_take_the_bits_of_their_range(values: int, bits: int) -> None:
    codec = Integers(values, (3, 5))
    targets = torch.randint(values, (7, 3, 5), generator=torch.Generator().manual_seed(0))
    packed = codec.pack(targets)
    assert len(packed) == codec.size(7) == math.ceil(7 * 15 * bits / 8)
    assert torch.equal(codec.unpack(packed, 7), targets)
    for wrong in (packed[:-1], packed + b"\0"):
        with pytest.raises(MessageError, match="bytes"):
            codec.unpack(wrong, 7)


def test_bits_are_packed_from_booleans() -> None:
    given_ = torch.tensor([[True, False, True]])
    assert Integers(2, (3,)).pack(given_) == b"\x05"


def test_integers_outside_their_range_are_the_data_s_fault() -> None:
    with pytest.raises(DataError, match="0 to 4 can be"):
        Integers(5, (2,)).pack(torch.tensor([[0, 5]]))


def test_floats_are_frames_of_the_agreed_shape() -> None:
    codec = Floats((2,))
    targets = torch.randn(4, 2)
    packed = codec.pack(targets.double())
    assert len(packed) <= codec.size(4)
    assert torch.equal(codec.unpack(packed, 4), targets)
    with pytest.raises(FrameError, match="elements"):
        codec.unpack(packed, 3)
    with pytest.raises(MessageError, match=r"shape \[4, 2\].*expected \[8\]"):
        Floats().unpack(packed, 8)
    with pytest.raises(CutlayerError):
        codec.unpack(packed[:-3], 4)


def test_floats_that_are_not_finite_never_travel() -> None:
    with pytest.raises(CutlayerError, match=r"NaN|finite"):
        Floats().pack(torch.tensor([1.0, math.nan]))
