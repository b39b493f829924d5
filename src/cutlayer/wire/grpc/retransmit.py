"""Nothing lost, nothing twice: the numbers of messages on a connection that may break and come back.

Each side numbers what it sends and keeps it until the other side has confirmed it; each message confirms
what has arrived. After a new connection both sides tell what they have received, and the rest is sent
again. Clients and server speak in turn, so only a few messages are ever kept.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TypeVar

from cutlayer.errors import MessageError

T = TypeVar("T")
Parts = tuple[bytes, ...]


class Reliable:
    """One side of a conversation. Several threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent = 0
        self._received = 0
        self._kept: deque[tuple[int, Parts]] = deque()
        self._kept_bytes = 0

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

    def send(self, *message: bytes) -> None:
        """Give the next number to a message, in whatever parts it comes, and keep it."""
        with self._lock:
            self._sent += 1
            self._kept.append((self._sent, message))
            self._kept_bytes += sum(map(len, message))

    def after(self, number: int) -> tuple[int, Parts] | None:
        """The first kept message with a larger number, for whoever writes to the connection."""
        with self._lock:
            return next((item for item in self._kept if item[0] > number), None)

    def accept(self, number: int, confirms: int, message: T) -> T | None:
        """A message that arrived; None if it did before. What the other side has confirmed is forgotten."""
        self.confirm(confirms)
        with self._lock:
            if number <= self._received:
                return None
            if number != self._received + 1:
                raise MessageError(f"message {number} arrived where {self._received + 1} was expected")
            self._received = number
            return message

    def confirm(self, number: int) -> None:
        """The other side has everything up to this number."""
        with self._lock:
            if number > self._sent:
                raise MessageError(f"message {number} is confirmed, but only {self._sent} were sent")
            while self._kept and self._kept[0][0] <= number:
                _, message = self._kept.popleft()
                self._kept_bytes -= sum(map(len, message))
