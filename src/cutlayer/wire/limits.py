"""What one client may cost the server, at most."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cutlayer.errors import ConfigError

MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Seconds and sizes. A client that goes beyond them is disconnected and told why."""

    message: int = 256 * MIB
    """Bytes of one message."""
    waiting: int = 8
    """Messages of one client that nobody has asked for yet. An honest client never has more than two."""
    rate: float = 1000.0
    """Messages a second of one client, on average over a few seconds."""
    handshake: float = 5.0
    """Seconds from a connection to the end of its handshakes, TLS and HTTP/2."""
    idle: float = 300.0
    """Seconds that a connection may stay on which nobody calls."""
    hello: float = 10.0
    """Seconds from the beginning of a stream to its Hello."""
    body: float = 30.0
    """Seconds from the beginning of a call to the end of its request."""
    prepare: float = 900.0
    """Seconds from the Offer to Ready, while the client loads its data."""
    silence: float = 900.0
    """Seconds in which a client that is connected and asked does not answer."""
    strangers: int = 64
    """Streams and calls at a time that have not said anything yet; a newer one replaces the oldest."""
    connections: int = 8192
    """Connections at a time, in whatever state."""
    unknown: int = 1024
    """Connections at a time that have not shown a good credential; the oldest are closed beyond that."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ConfigError(f"the limit {name} must be more than 0, not {value}")


def largest_from_server(elements: int, learned: int) -> int:
    """Bytes of the largest message that an honest server sends.

    It is a tensor of so many elements under a codec that is worse than none, or the state of a client that
    has `learned` so many numbers: these, their momenta, and what error feedback keeps.
    """
    return max(8 * elements, 64 * learned) + MIB


class Places:
    """Places that peers share by a dynamic threshold (Choudhury and Hahne, 1998).

    A peer may hold as many as are free: one alone gets half of them, and another then half of the rest.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.taken = 0
        self._held: Counter[str] = Counter()

    @contextmanager
    def held(self, peer: str) -> Iterator[None]:
        """Hold a place. Raises BlockingIOError if this peer cannot have one now."""
        if self._held[peer] >= self.total - self.taken:
            raise BlockingIOError(
                f"{self._held[peer]} of this client's requests and {self.taken} in all are waiting already; "
                "come again in a moment"
            )
        self.taken += 1
        self._held[peer] += 1
        try:
            yield
        finally:
            self.taken -= 1
            self._held[peer] -= 1
            if not self._held[peer]:
                del self._held[peer]


class Rate:
    """Counts what comes, and tells when it comes too fast: a bucket that leaks `limit` a second."""

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._level = 0.0
        self._last = clock()

    def exceeded(self, count: int = 1) -> bool:
        """Count one, or so many; True if more than five seconds' worth came at once."""
        now = self._clock()
        self._level = max(0.0, self._level - (now - self._last) * self._limit) + count
        self._last = now
        return self._level > 5 * self._limit


class Unhandled:
    """Counts the bytes that have arrived and that nobody has handled yet, so that no more are read meanwhile.

    `waiting` tells how many messages wait to be handled.
    """

    #: What a message takes beside its bytes.
    OVERHEAD = 1024

    def __init__(self, most: int, waiting: Callable[[], int]) -> None:
        self.most = most
        self._waiting = waiting
        self._bytes = 0

    def add(self, size: int) -> None:
        """A message of that size has arrived."""
        self._bytes = (self._bytes if self._waiting() else 0) + size + self.OVERHEAD

    @property
    def full(self) -> bool:
        """Whether to read on only when something was handled."""
        return self._bytes > self.most and self._waiting() > 0
