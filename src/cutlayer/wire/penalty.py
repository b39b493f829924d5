"""How long a client that broke the protocol has to stay away: longer each time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class _Record:
    offences: int
    last: float
    until: float


class Penalties:
    """Counts the offences of clients. The first costs nothing, because anybody can stumble once.

    The second costs `first` seconds, and each further one twice as much as that before, up to `longest`. A
    client that did nothing wrong for `forgiven_after` seconds begins anew.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        first: float = 1.0,
        longest: float = 300.0,
        forgiven_after: float = 3600.0,
    ) -> None:
        self._clock = clock
        self._first = first
        self._longest = longest
        self._forgiven_after = forgiven_after
        self._records: dict[int, _Record] = {}

    def add(self, client: int) -> float:
        """A client broke the protocol: the seconds for which it has to stay away."""
        now = self._clock()
        before = self._records.get(client)
        known = before is not None and now - before.last <= self._forgiven_after
        offences = before.offences + 1 if before is not None and known else 1
        # The exponent is bounded, so that no count is too large for a float.
        wait = min(self._longest, self._first * 2.0 ** min(offences - 2, 60)) if offences > 1 else 0.0
        self._records[client] = _Record(offences, now, now + wait)
        return wait

    def offences(self, client: int) -> int:
        """How often it broke the protocol."""
        found = self._records.get(client)
        return found.offences if found else 0

    def left(self, client: int) -> float:
        """For how many seconds it still has to stay away."""
        found = self._records.get(client)
        return max(0.0, found.until - self._clock()) if found else 0.0
