"""Nothing lost, nothing twice: the numbers of messages on a connection that may break and come back.

Each side numbers what it sends and keeps it until the other side has confirmed it; each message confirms
what has arrived. After a new connection both sides tell what they have received, and the rest is sent
again. Clients and server speak in turn, so only a few messages are ever kept.

A large message goes in pieces, each with a number of its own. So the receiver can refuse it at the first
piece too many, before there is memory for the rest, and a broken connection costs one piece.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from cutlayer.errors import MessageError
from cutlayer.wire.messages.envelope import MOST_MESSAGES, Packet, Parts, seal

#: Bytes of a piece.
PIECE = 16 << 20


class Piece(NamedTuple):
    """A message, or a part of one, with its number."""

    number: int
    parts: Parts
    more: bool = False
    """Whether the message goes on in the next one."""


class Reliable:
    """One side of a conversation. Several threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent = 0
        self._received = 0
        self._kept: deque[Piece] = deque()
        self._kept_bytes = 0
        self._pieces: list[memoryview] = []

    @property
    def received(self) -> int:
        """The number of the last message that arrived."""
        return self._received

    @property
    def kept_bytes(self) -> int:
        """How many bytes wait to be sent or acknowledged."""
        return self._kept_bytes

    @property
    def kept(self) -> int:
        """How many messages wait to be sent or confirmed."""
        return len(self._kept)

    def send(self, *message: bytes | memoryview) -> None:
        """Give the next number to a message, in whatever parts it comes, and keep it."""
        size = sum(map(len, message))
        pieces = [message] if size <= PIECE else list(_pieces(message))
        with self._lock:
            for left, parts in zip(reversed(range(len(pieces))), pieces, strict=True):
                self._sent += 1
                self._kept.append(Piece(self._sent, parts, left > 0))
            self._kept_bytes += size

    def batch(self, number: int, several: bool) -> list[Piece]:
        """The kept pieces with larger numbers that can go out together, the oldest first.

        It is one at most without `several`, or if it is a piece of a large message.
        """
        found: list[Piece] = []
        size = 0
        with self._lock:
            for piece in self._kept:
                if piece.number <= number:
                    continue
                size += sum(map(len, piece.parts))
                if found and (piece.more or size > PIECE or len(found) == MOST_MESSAGES):
                    break
                found.append(piece)
                if piece.more or not several:
                    break
        return found

    def accept_all(self, packet: Packet, most: Callable[[], int]) -> Iterator[memoryview]:
        """The messages of a packet that are complete now and did not arrive before: see `accept`.

        `most` is asked before each, when those before it have been taken.
        """
        if packet.more and packet.further:
            raise MessageError("a piece of a message together with others")
        message = self.accept(packet.number, packet.received, packet.message, packet.more, most())
        if message is not None:
            yield message
        for number, further in enumerate(packet.further, packet.number + 1):
            message = self._accept(number, further, False, most())
            if message is not None:
                yield message

    def accept(
        self, number: int, confirms: int, message: memoryview, more: bool = False, most: int | None = None
    ) -> memoryview | None:
        """A message that is complete now; None if it is not, or arrived before.

        What the other side has confirmed is forgotten. Raises MessageError, and keeps nothing, if the
        message takes more than `most` bytes.
        """
        self.confirm(confirms)
        return self._accept(number, message, more, most)

    def _accept(self, number: int, message: memoryview, more: bool, most: int | None) -> memoryview | None:
        with self._lock:
            if number <= self._received:
                return None
            if number != self._received + 1:
                raise MessageError(f"message {number} arrived where {self._received + 1} was expected")
            if most is not None and sum(map(len, self._pieces)) + len(message) > most:
                self._pieces.clear()
                raise MessageError(f"more than {most} bytes that nobody asked for")
            if more and len(message) != PIECE:
                # Otherwise millions of small pieces would be a message.
                raise MessageError(f"a piece of {len(message)} bytes, where {PIECE} are expected")
            self._received = number
            if not (more or self._pieces):
                return message
            self._pieces.append(message)
            if more:
                return None
            pieces, self._pieces = self._pieces, []
            return memoryview(b"".join(pieces))

    def confirm(self, number: int) -> None:
        """The other side has everything up to this number."""
        with self._lock:
            if number > self._sent:
                raise MessageError(f"message {number} is confirmed, but only {self._sent} were sent")
            while self._kept and self._kept[0].number <= number:
                self._kept_bytes -= sum(map(len, self._kept.popleft().parts))


def sealed(field: int, received: int, pieces: Sequence[Piece]) -> tuple[bytes, int]:
    """Pieces that go out together as the bytes of an Up or Down, and how many bytes of them are messages."""
    first, *others = pieces
    further = [piece.parts for piece in others]
    size = sum(len(part) for piece in pieces for part in piece.parts)
    return seal(field, first.number, received, first.parts, first.more, further), size


def _pieces(message: Parts) -> Iterator[Parts]:
    """A message in pieces of PIECE bytes, the last one shorter. They share the message's memory."""
    piece: list[bytes | memoryview] = []
    room = PIECE
    for part in message:
        rest = memoryview(part)
        while len(rest) > room:
            yield (*piece, rest[:room])
            rest, piece, room = rest[room:], [], PIECE
        piece.append(rest)
        room -= len(rest)
    yield tuple(piece)
