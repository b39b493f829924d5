"""Data messages to bytes and back without a copy too many.

A Data message is mostly one large byte string. The protobuf library copies that five times on its way;
written by hand, the same bytes take one copy. Whatever does not look as we write it is left to the library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cutlayer.errors import MessageError
from cutlayer.wire.messages.protobuf import message_class
from cutlayer.wire.text import with_plain_strings

#: Where Data stands in Up and in Down.
UP, DOWN = 3, 4
_NUMBER, _RECEIVED, _MESSAGE, _MORE, _FURTHER = 0x08, 0x10, 0x1A, b"\x20\x01", 0x2A
#: How many messages one Data carries at most.
MOST_MESSAGES = 16
_JSON = frozenset({"settings"})
Parts = tuple[bytes | memoryview, ...]


class Packet(NamedTuple):
    """A Data message that arrived."""

    number: int
    received: int
    message: memoryview
    more: bool = False
    """Whether the message goes on in the next one."""
    further: tuple[memoryview, ...] = ()
    """The messages with the next numbers."""


def seal(
    field: int,
    number: int,
    received: int,
    parts: Parts,
    more: bool = False,
    further: Sequence[Parts] = (),
) -> bytes:
    """The bytes of an Up or Down with Data whose message is all parts together, or a piece of one.

    `further` are the parts of the messages with the next numbers.
    """
    size = sum(map(len, parts))
    # A list of all pieces, so that the bytes of messages are copied once.
    inner: list[bytes | memoryview] = []
    if number:
        inner += (b"\x08", _varint(number))
    if received:
        inner += (b"\x10", _varint(received))
    if size:
        inner += (b"\x1a", _varint(size), *parts)
    if more:
        inner.append(_MORE)
    for next_parts in further:
        inner += (b"\x2a", _varint(sum(map(len, next_parts))), *next_parts)
    return b"".join((bytes((field << 3 | 2,)), _varint(sum(map(len, inner))), *inner))


def opener(field: int, kind: str) -> Callable[[bytes], Any]:
    """What reads an Up or Down (`kind`): a Packet, or the message of the library with plain strings."""
    from google.protobuf.message import DecodeError

    def open_(data: bytes) -> Any:
        if data[:1] == bytes((field << 3 | 2,)):
            packet = _open(memoryview(data))
            if packet is not None:
                return packet
        try:
            message = message_class(kind).FromString(data)
        except DecodeError as error:
            raise MessageError(f"{len(data)} bytes that are no {kind}") from error
        if message.WhichOneof("content") == "data":
            found = message.data
            if len(found.further) >= MOST_MESSAGES:
                raise MessageError(f"more than {MOST_MESSAGES} messages at once")
            further = tuple(memoryview(one) for one in found.further)
            return Packet(found.number, found.received, memoryview(found.message), found.more, further)
        return with_plain_strings(message, _JSON)

    return open_


_SMALL = tuple(bytes((value,)) for value in range(0x80))


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
        more = data[at : at + len(_MORE)] == _MORE
        at += len(_MORE) * more
        further: list[memoryview] = []
        while at < len(data) and data[at] == _FURTHER and len(further) < MOST_MESSAGES - 1:
            size, at = _read(data, at + 1)
            further.append(data[at : at + size])
            at += size
        if at != len(data):
            return None
        return Packet(values[_NUMBER], values[_RECEIVED], message, more, tuple(further))
    except (IndexError, MessageError):
        return None


def _varint(value: int) -> bytes:
    if value < 0x80:
        return _SMALL[value]
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
