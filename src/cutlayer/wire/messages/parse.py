"""Messages from bytes that another party sent. Nothing about them is taken for granted."""

import struct

from typing_extensions import Buffer

from cutlayer.errors import MessageError
from cutlayer.wire.messages.base import Message, layout_of
from cutlayer.wire.messages.types import TYPES, Share, SyncUp


def unpack(data: Buffer) -> Message:
    """The message in one byte string from another party."""
    view = memoryview(data)
    if not view:
        raise MessageError("an empty message")
    end = head_size(view[0])
    return parse(bytes(view[:end]), bytes(view[end:]))


def head_size(first: int) -> int:
    """How many bytes the head has whose type byte is `first`; for transports that carry one byte string."""
    if first >= len(TYPES):
        raise MessageError(f"no message has the type {first}; is the peer newer?")
    return layout_of(TYPES[first]).struct.size


def parse(head: bytes, body: bytes) -> Message:
    """The message in bytes from another party."""
    if not head or head[0] >= len(TYPES):
        raise MessageError(f"no message begins with {head[:1].hex() or 'nothing'}; is the peer newer?")
    cls = TYPES[head[0]]
    try:
        layout = layout_of(cls)
        _, *values = layout.struct.unpack(head)
        fields = dict(zip(layout.names, values, strict=True))
        if "share" in fields:
            fields["share"] = Share(fields["share"])
    except (struct.error, ValueError) as error:
        raise MessageError(f"a damaged {cls.__name__} message: {error}") from None
    if fields.get("first", 0) > len(body) and issubclass(cls, SyncUp):
        raise MessageError(f"{cls.__name__}: the first frame would end behind the message")
    return cls.read(fields, body)
