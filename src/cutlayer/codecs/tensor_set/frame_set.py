"""Several frames under names as one byte string: what crosses a cut through which several tensors go."""

import re
from collections.abc import Mapping

from typing_extensions import Buffer

from cutlayer.codecs import frame
from cutlayer.errors import HeaderError, TrailingBytesError, TruncatedFrameError, VersionError

MAGIC = b"\x89CUS"
VERSION = 1
MOST = 255
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")


def is_set(data: Buffer) -> bool:
    """Whether bytes are a set of frames, and not one frame."""
    return bytes(memoryview(data)[: len(MAGIC)]) == MAGIC


def join_frames(frames: Mapping[str, bytes]) -> bytes:
    """The set of these frames, in their order."""
    if not 1 <= len(frames) <= MOST:
        raise HeaderError(f"a set has 1 to {MOST} frames, not {len(frames)}")
    table = b"".join(
        bytes((len(name),)) + name.encode("ascii") + frame.varint(len(data)) for name, data in frames.items()
    )
    return b"".join((MAGIC, bytes((VERSION, len(frames))), table, *frames.values()))


def split_frames(data: Buffer) -> dict[str, memoryview]:
    """The frames of a set, by name. They are neither decoded nor checked; names and sizes are."""
    view = memoryview(data).toreadonly()
    if len(view) < 6 or not is_set(view):
        raise TruncatedFrameError("a set of frames ends within its header")
    if view[4] != VERSION:
        raise VersionError(f"the set of frames is of version {view[4]}, this library reads version {VERSION}")
    at, sizes = 6, dict[str, int]()
    for _ in range(view[5]):
        end = at + 1 + (view[at] if at < len(view) else 0)
        if end >= len(view):
            raise TruncatedFrameError("a set of frames ends within its names")
        name = bytes(view[at + 1 : end]).decode("latin-1")
        if not _NAME.fullmatch(name) or name in sizes:
            raise HeaderError("a set of frames names a tensor twice, or by what is no name")
        sizes[name], at = frame.read_varint(view, end)
    total = at + sum(sizes.values())
    if not sizes:
        raise HeaderError("a set of no frames")
    if len(view) < total:
        raise TruncatedFrameError(f"the set of frames takes {total} bytes, only {len(view)} are there")
    if len(view) > total:
        raise TrailingBytesError(f"{len(view) - total} bytes follow the end of the set of frames")
    found = {}
    for name, size in sizes.items():
        found[name], at = view[at : at + size], at + size
    return found
