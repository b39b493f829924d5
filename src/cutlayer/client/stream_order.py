"""A client's way to an aggregator that runs alone, in step with what the server says.

Two connections have no common order. The server says `Elsewhere` where a message of the aggregator belongs,
and what it says after that waits. Both name the stretch of the run (the era), so that nothing of an earlier
one is taken.
"""

from __future__ import annotations

from collections import deque

from typing_extensions import Buffer

from cutlayer.wire.grpc.connection import Connection, Event
from cutlayer.wire.grpc.retransmit import Parts, Reliable


class Detour:
    """What has come from the aggregator and not been taken, and what could not be sent to it yet."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.held: deque[Event] = deque()
        """Messages of the server that have not been handled."""
        self._era = ""
        self._aggregators_era = ""
        self._conversation: Reliable | None = None
        self._here: deque[tuple[str, Buffer]] = deque()
        self._unsent: deque[Parts] = deque()

    def begin(self, era: str) -> None:
        """The server begins an era."""
        self._era = era
        self.held.clear()
        self._unsent.clear()
        self._here = deque(item for item in self._here if item[0] == era)

    def welcomed(self, event: Event) -> None:
        """The aggregator begins an era, before or after the server's word of it."""
        self._aggregators_era, self._conversation = event.content.era, event.conversation
        if self._aggregators_era == self._era:
            while self._unsent:
                self.connection.send(self._conversation, self._unsent.popleft())

    def arrived(self, message: Buffer) -> None:
        """A message of the aggregator."""
        self._here.append((self._aggregators_era, message))

    def take(self) -> Buffer | None:
        """The next message of this era, if it is there."""
        if self._here and self._here[0][0] == self._era:
            return self._here.popleft()[1]
        return None

    def send(self, message: Parts) -> None:
        """Send to the aggregator, now or when it has begun this era, too."""
        if self._aggregators_era == self._era:
            self.connection.send(self._conversation, message)
        else:
            self._unsent.append(message)
