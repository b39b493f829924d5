"""How fast messages really leave, as the other side's confirmations tell.

A socket's buffers take a message long before it is through, so the time of a write says little. The time
from the beginning of a write to the confirmation that the message has arrived says it all: one round trip,
and the transfer.
"""

from __future__ import annotations

import threading

#: Messages up to this size tell the round trip; larger ones the transfer.
SMALL = 1024


class Gauge:
    """Measures one connection. Several threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, tuple[int, float, bool]] = {}
        self._round_trip = 0.0
        self._bytes = 0
        self._seconds = 0.0

    def sent(self, number: int, nbytes: int, at: float) -> None:
        """A message begins to leave."""
        with self._lock:
            # Behind another message it would wait, and tell nothing about the round trip.
            self._open[number] = (nbytes, at, not self._open)

    def confirmed(self, number: int, at: float) -> None:
        """All messages up to this number have arrived; this one just now."""
        with self._lock:
            found = self._open.get(number)
            self._open = {n: message for n, message in self._open.items() if n > number}
            if found is None:
                return
            nbytes, began, alone = found
            if nbytes > SMALL:
                self._bytes += nbytes
                self._seconds += at - began
                # The shortest round trip is inside of every measurement.
                self._seconds = max(self._seconds - self._round_trip, 1e-6)
            elif alone:
                took = at - began
                self._round_trip = min(self._round_trip or took, took)

    def clear(self) -> None:
        """The connection is a new one: what was on its way is no measure."""
        with self._lock:
            self._open.clear()

    def take(self) -> float | None:
        """Bits a second since it was last asked; None if nothing large has arrived since."""
        with self._lock:
            nbytes, seconds = self._bytes, self._seconds
            self._bytes, self._seconds = 0, 0.0
        return 8 * nbytes / seconds if nbytes else None
