"""Data messages to bytes and back without a copy too many.

A Data message is mostly one large byte string. The protobuf library copies that five times on its way;
written by hand, the same bytes take one copy. Whatever does not look as we write it is left to the library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from cutlayer.errors import MessageError
from cutlayer.wire.messages.protobuf import message_class
from cutlayer.wire.text import with_plain_strings

#: Where Data stands in Up and in Down.
UP, DOWN = 3, 4
_NUMBER, _RECEIVED, _MESSAGE, _MORE = 0x08, 0x10, 0x1A, b"\x20\x01"
_JSON = frozenset({"settings"})


class Packet(NamedTuple):
    """A Data message that arrived."""

    number: int
    received: int
    message: memoryview
    more: bool = False
    """Whether the message goes on in the next one."""


def seal(
    field: int, number: int, received: int, parts: tuple[bytes | memoryview, ...], more: bool = False
) -> bytes:
    """The bytes of an Up or Down with Data whose message is all parts together, or a piece of one."""
    size = sum(map(len, parts))
    tail = _MORE if more else b""
    inner = b"".join(
        (
            bytes((_NUMBER,)) + _varint(number) if number else b"",
            bytes((_RECEIVED,)) + _varint(received) if received else b"",
            bytes((_MESSAGE,)) + _varint(size) if size else b"",
        )
    )
    return b"".join((bytes((field << 3 | 2,)), _varint(len(inner) + size + len(tail)), inner, *parts, tail))


def opener(field: int, kind: str) -> Callable[[bytes], Any]:
    """What reads an Up or Down (`kind`): a Packet, or the message of the library with plain strings."""

    def open_(data: bytes) -> Any:
        if data[:1] == bytes((field << 3 | 2,)):
            packet = _open(memoryview(data))
            if packet is not None:
                return packet
        message = message_class(kind).FromString(data)
        if message.WhichOneof("content") == "data":
            found = message.data
            return Packet(found.number, found.received, memoryview(found.message), found.more)
        return with_plain_strings(message, _JSON)

    return open_


def to_bytes(message: Any) -> bytes:
    """What was sealed as it is, other messages by the library."""
    if isinstance(message, bytes):
        return message
    packed: bytes = message.SerializeToString()
    return packed


def content_of(message: Any) -> str | None:
    """Which kind of Up or Down it is."""
    if isinstance(message, Packet):
        return "data"
    kind: str | None = message.WhichOneof("content")
    return kind


def _open(data: memoryview) -> Packet | None:
    """A Packet, if these are exactly the fields that `seal` writes, in its order; None otherwise."""
    try:
        size, at = _read(data, 1)
        if at + size != len(data):
            return None
        values = {_NUMBER: 0, _RECEIVED: 0}
        for tag in values:
            if at < len(data) and data[at] == tag:
                values[tag], at = _read(data, at + 1)
        message = data[:0]
        if at < len(data) and data[at] == _MESSAGE:
            size, at = _read(data, at + 1)
            message = data[at : at + size]
            at += size
        more = data[at:] == _MORE
        if at + len(_MORE) * more != len(data):
            return None
        return Packet(values[_NUMBER], values[_RECEIVED], message, more)
    except (IndexError, MessageError):
        return None


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise MessageError("a number of more than 64 bits")
