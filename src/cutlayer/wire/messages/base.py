"""A message as bytes: a head (a type byte and fixed little-endian fields), then a body."""

import dataclasses
import operator
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from cutlayer.errors import MessageError
from cutlayer.wire.meter import Kind


@dataclass(frozen=True, slots=True)
class Message:
    """Base of all messages. Fields named in `layout` make the head; `body` is what follows it."""

    code: ClassVar[int]
    """The type byte."""
    kind: ClassVar[Kind] = Kind.CONTROL
    layout: ClassVar[str] = ""

    number: int

    def head(self) -> bytes:
        """The type and the fixed fields."""
        layout = layout_of(type(self))
        return layout.struct.pack(self.code, *layout.values(self))

    @property
    def content(self) -> bytes:
        """The body; empty for messages that are all head."""
        return b""

    @property
    def size(self) -> int:
        """The bytes that are counted: the body, or the head where there is no body."""
        return len(self.content) or layout_of(type(self)).struct.size

    def sizes(self) -> Mapping[Kind, int]:
        """The bytes that are counted, by what they carry."""
        return {self.kind: self.size}


@dataclass(frozen=True, slots=True)
class WithBody(Message):
    """A message with a body."""

    body: bytes

    @property
    def content(self) -> bytes:
        """The body."""
        return self.body


def pack(message: Message) -> tuple[bytes, bytes]:
    """The message as head and body, which are sent as one byte string."""
    return message.head(), message.content


class Layout:
    """How the head of one type of message is packed; made once for each, since a server packs many."""

    def __init__(self, cls: type[Message]) -> None:
        self.cls = cls
        self.struct = struct.Struct("<BQ" + cls.layout)
        self.names = tuple(f.name for f in dataclasses.fields(cls) if f.name != "body")
        """The fields that stand in the head, in order."""
        self.share = self.names.index("share") - 1 if "share" in self.names else None
        """Where behind the number it stands what a message shares."""
        self._has_body = issubclass(cls, WithBody)
        # Of a single name, it would give the value and not a tuple.
        self._get = operator.attrgetter(*self.names)

    def values(self, message: Message) -> tuple[Any, ...]:
        """What stands in the head, in order."""
        found: Any = self._get(message)
        return found if len(self.names) > 1 else (found,)

    def message(self, number: int, values: Sequence[Any], body: bytes) -> Message:
        """The message of this number, what stands in its head behind that, and this body."""
        make: Any = self.cls
        # Fields of a dataclass are in the order in which its bases declare them.
        found: Message
        if self._has_body:
            found = make(number, body, *values)
        elif body:
            raise MessageError(f"{self.cls.__name__} has no body, but {len(body)} bytes follow")
        else:
            found = make(number, *values)
        return found


def layout_of(cls: type[Message]) -> Layout:
    """The layout of such messages."""
    found = _LAYOUTS.get(cls)
    if found is None:
        found = _LAYOUTS[cls] = Layout(cls)
    return found


_LAYOUTS: dict[type[Message], Layout] = {}
