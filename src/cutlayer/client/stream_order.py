"""A client's second stream, to an aggregator that runs alone, put in order with the server's stream.

Two streams have no common order. The server sends a Placeholder where a message of the aggregator belongs,
and what it says after that waits. Both name the era of the run, so that nothing of an earlier one is taken.
"""

from __future__ import annotations

from collections import deque

from typing_extensions import Buffer

from cutlayer.errors import MessageError
from cutlayer.wire.grpc.connection import Connection, Event
from cutlayer.wire.grpc.retransmit import Reliable
from cutlayer.wire.messages.envelope import Parts

# Messages that wait for each other: an honest server and aggregator are a few apart.
_MOST = 1024


class AggregatorStream:
    """What has come from the aggregator and not been taken, and what could not be sent to it yet."""

    def __init__(self, connection: Connection, largest_message: int) -> None:
        self.connection = connection
        connection.take_at_most(largest_message)
        self._most_bytes = 4 * largest_message
        self.pending: deque[Event] = deque()
        """Messages of the server that have not been handled."""
        self._era = ""
        self._aggregators_era = ""
        self._conversation: Reliable | None = None
        self._arrived: deque[tuple[str, Buffer]] = deque()
        self._unsent: deque[Parts] = deque()

    def begin(self, era: str) -> None:
        """The server begins an era."""
        self._era = era
        self.pending.clear()
        self._unsent.clear()
        self._arrived = deque(item for item in self._arrived if item[0] == era)

    def welcomed(self, event: Event) -> None:
        """The aggregator begins an era, before or after the server's word of it."""
        self._aggregators_era, self._conversation = event.content.era, event.conversation
        if self._aggregators_era == self._era:
            while self._unsent:
                self.connection.send(self._conversation, self._unsent.popleft())

    def expect(self, event: Event) -> None:
        """A message of the server."""
        self.pending.append(event)
        self._check("the server", [found.content for found in self.pending])

    def arrived(self, message: Buffer) -> None:
        """A message of the aggregator."""
        self._arrived.append((self._aggregators_era, message))
        self._check("the aggregator", [found for _, found in self._arrived])

    def _check(self, whose: str, waiting: list[Buffer]) -> None:
        """What waits for the other one's word is bounded: it is in memory."""
        if len(waiting) > _MOST or sum(memoryview(one).nbytes for one in waiting) > self._most_bytes:
            raise MessageError(f"{whose} sends more than can wait for what belongs before it")

    def take(self) -> Buffer | None:
        """The next message of this era, if it is there."""
        if self._arrived and self._arrived[0][0] == self._era:
            return self._arrived.popleft()[1]
        return None

    def send(self, message: Parts) -> None:
        """Send to the aggregator, now or when it has begun this era, too."""
        if self._aggregators_era == self._era:
            self.connection.send(self._conversation, message)
        else:
            self._unsent.append(message)
