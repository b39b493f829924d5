"""What one client may cost the server, at most."""

from __future__ import annotations

import time
from collections.abc import Callable
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
    hello: float = 10.0
    """Seconds from a connection to its Hello."""
    prepare: float = 900.0
    """Seconds from the Offer to Ready, while the client loads its data."""
    silence: float = 900.0
    """Seconds in which a client that is connected and asked does not answer."""
    strangers: int = 64
    """Streams at a time beyond one for each client."""
    connections: int = 4096
    """Connections at a time, in whatever state."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ConfigError(f"the limit {name} must be more than 0, not {value}")


class Rate:
    """Counts what comes, and tells when it comes too fast: a bucket that leaks `limit` a second."""

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._level = 0.0
        self._last = clock()

    def exceeded(self) -> bool:
        """Count one; True if more than five seconds' worth came at once."""
        now = self._clock()
        self._level = max(0.0, self._level - (now - self._last) * self._limit) + 1
        self._last = now
        return self._level > 5 * self._limit
