"""A message as bytes: a head (a type byte and fixed little-endian fields), then a body."""

import dataclasses
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

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
        values = [getattr(self, name) for name in field_names(type(self))]
        return struct.pack(head_format(type(self)), self.code, *values)

    @property
    def content(self) -> bytes:
        """The body; empty for messages that are all head."""
        return b""

    @property
    def size(self) -> int:
        """The bytes that are counted: the body, or the head where there is no body."""
        return len(self.content) or len(self.head())

    def sizes(self) -> Mapping[Kind, int]:
        """The bytes that are counted, by what they carry."""
        return {self.kind: self.size}

    @classmethod
    def read(cls, values: dict[str, Any], body: bytes) -> Self:
        """The message of these fields and this body."""
        if body:
            raise MessageError(f"{cls.__name__} has no body, but {len(body)} bytes follow")
        return cls(**values)


@dataclass(frozen=True, slots=True)
class WithBody(Message):
    """A message with a body."""

    body: bytes

    @property
    def content(self) -> bytes:
        """The body."""
        return self.body

    @classmethod
    def read(cls, values: dict[str, Any], body: bytes) -> Self:
        """The message of these fields and this body."""
        return cls(**values, body=body)


def pack(message: Message) -> tuple[bytes, bytes]:
    """The message as head and body, which are sent as one byte string."""
    return message.head(), message.content


def head_format(cls: type[Message]) -> str:
    """The head of such messages, as `struct` calls it."""
    return "<BQ" + cls.layout


def field_names(cls: type[Message]) -> list[str]:
    """The fields of such messages that stand in the head, in order."""
    names = _NAMES.get(cls)
    if names is None:
        names = _NAMES[cls] = [f.name for f in dataclasses.fields(cls) if f.name != "body"]
    return names


_NAMES: dict[type[Message], list[str]] = {}
