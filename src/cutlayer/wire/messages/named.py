"""Several named byte strings in the body of one message: the tensors of a request.

    count of entries (1 byte), then for each entry: kind (1), length of its name (1), its name (ASCII),
    length of its data (4, little-endian); then all data, one behind the other.

What the data are, a codec's frame or packed integers, is not known here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from cutlayer.errors import MessageError
from cutlayer.wire.meter import Kind

_KINDS = tuple(Kind)
_FIXED, _LENGTH = struct.Struct("<BB"), struct.Struct("<I")
#: No model has so many tensors at a cut.
MOST = 64


class Named(NamedTuple):
    """One entry."""

    name: str
    kind: Kind
    data: bytes


def join_named(entries: Iterable[Named]) -> bytes:
    """The body with these entries; nothing at all if there are none."""
    found = list(entries)
    if not found:
        return b""
    if len(found) > MOST:
        raise MessageError(f"{len(found)} tensors in one message; at most {MOST} fit")
    table = [bytes((len(found),))]
    for name, kind, data in found:
        text = name.encode("ascii", "replace")
        if not 0 < len(text) < 256 or len(data) >= 1 << 32:
            raise MessageError(f"a tensor {name[:40]!r} of {len(data)} bytes cannot be named in a message")
        table += [_FIXED.pack(_KINDS.index(kind), len(text)), text, _LENGTH.pack(len(data))]
    return b"".join([*table, *(entry.data for entry in found)])


def split_named(body: bytes) -> list[Named]:
    """The entries of a body from another party. Raises MessageError if it is damaged."""
    heads, at = _heads(body)
    entries = []
    for name, kind, size in heads:
        entries.append(Named(name, kind, body[at : at + size]))
        at += size
    return entries


def sizes_by_kind(body: bytes) -> dict[Kind, int]:
    """The bytes of the entries by kind, and those of the table as control. Raises as `split_named`."""
    heads, at = _heads(body)
    found: dict[Kind, int] = {Kind.CONTROL: at}
    for _, kind, size in heads:
        found[kind] = found.get(kind, 0) + size
    return found


def _heads(body: bytes) -> tuple[list[tuple[str, Kind, int]], int]:
    """Name, kind and size of each entry, and where the data begin."""
    if not body:
        return [], 0
    at, heads = 1, []
    try:
        if not 0 < body[0] <= MOST:
            raise MessageError(f"a message with {body[0]} tensors; 1 to {MOST} are expected")
        for _ in range(body[0]):
            kind, length = _FIXED.unpack_from(body, at)
            name = body[at + 2 : at + 2 + length]
            at += 2 + length
            (size,) = _LENGTH.unpack_from(body, at)
            at += 4
            heads.append((name.decode("ascii"), _KINDS[kind], size))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MessageError(f"a damaged table of tensors: {error}") from None
    if len({name for name, _, _ in heads}) != len(heads) or not all(name for name, _, _ in heads):
        raise MessageError("two tensors of one message have the same name, or one has none")
    if at + sum(size for _, _, size in heads) != len(body):
        raise MessageError(f"tensors of {sum(size for _, _, size in heads)} bytes in {len(body) - at}")
    return heads, at
