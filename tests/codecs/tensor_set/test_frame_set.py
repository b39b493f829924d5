"""Sets of frames: names, sizes and order, and what cannot be one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlayer.codecs.tensor_set.frame_set import is_set, join_frames, split_frames
from cutlayer.errors import FrameError, HeaderError, TrailingBytesError, TruncatedFrameError, VersionError

FRAMES = {"hidden": b"x" * 300, "mask": b"", "skip_1": b"yz"}


def test_frames_come_back_under_their_names() -> None:
    data = join_frames(FRAMES)
    assert is_set(data)
    assert not is_set(b"\x89CUT")
    found = split_frames(data)
    assert list(found) == list(FRAMES)
    assert {name: bytes(frame) for name, frame in found.items()} == FRAMES
    # Six bytes, and a name and a size for each.
    assert len(data) == 302 + 6 + sum(1 + len(name) for name in FRAMES) + 2 + 1 + 1


@pytest.mark.parametrize("length", range(4, 26))
def test_it_ends_too_early(length: int) -> None:
    with pytest.raises(TruncatedFrameError):
        split_frames(join_frames(FRAMES)[:length])


def test_what_is_no_set() -> None:
    data = join_frames(FRAMES)
    with pytest.raises(TrailingBytesError, match="1 bytes follow"):
        split_frames(data + b"!")
    with pytest.raises(VersionError, match="version 9"):
        split_frames(data[:4] + b"\x09" + data[5:])
    with pytest.raises(HeaderError, match="no frames"):
        split_frames(data[:5] + b"\0")
    with pytest.raises(HeaderError, match="twice"):
        split_frames(data[:4] + b"\x01\x02" + b"\x01a\x00" + b"\x01a\x00")
    with pytest.raises(HeaderError, match="no name"):
        split_frames(data[:4] + b"\x01\x01" + b"\x02a\x1b\x00")
    with pytest.raises(HeaderError, match="1 to 255"):
        join_frames({})


@given(st.binary(max_size=64))
def test_any_bytes_are_a_set_or_an_error(data: bytes) -> None:
    try:
        found = split_frames(b"\x89CUS\x01" + data)
    except FrameError:
        return
    assert sum(len(frame) for frame in found.values()) <= len(data)
