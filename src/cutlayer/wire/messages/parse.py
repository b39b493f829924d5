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
    return _LAYOUTS[first].struct.size


def parse(head: bytes, body: bytes) -> Message:
    """The message in bytes from another party."""
    if not head or head[0] >= len(TYPES):
        raise MessageError(f"no message begins with {head[:1].hex() or 'nothing'}; is the peer newer?")
    layout = _LAYOUTS[head[0]]
    try:
        _, number, *values = layout.struct.unpack(head)
        if layout.share is not None:
            values[layout.share] = _SHARES[values[layout.share]]
    except struct.error as error:
        raise MessageError(f"a damaged {layout.cls.__name__} message: {error}") from None
    except KeyError as error:
        raise MessageError(f"a damaged {layout.cls.__name__} message: {error} is nothing to share") from None
    if layout.cls in _TWO_FRAMES and values[1] > len(body):
        raise MessageError(f"{layout.cls.__name__}: the first frame would end behind the message")
    return layout.message(number, values, body)


_SHARES = {int(share): share for share in Share}
# Tables, since a server reads four messages of each client at each step.
_LAYOUTS = tuple(map(layout_of, TYPES))
_TWO_FRAMES = frozenset(cls for cls in TYPES if issubclass(cls, SyncUp))
