"""What a server sees of one client: when it was last heard of, how long its answers take, its bytes."""

from __future__ import annotations

import time
from typing import Any

# The weight of the newest answer in the running mean, which spans about three steps.
_NEWEST = 0.3


class Activity:
    """One client's activity. Whoever calls holds the lock of the membership."""

    __slots__ = ("_answer", "_asked", "_awaited", "_down", "_lost", "_seen", "_up")

    def __init__(self) -> None:
        self._seen: float | None = None
        self._asked: float | None = None
        self._awaited: float | None = None
        self._answer: float | None = None
        self._lost: float | None = None
        self._up = self._down = 0

    def sent(self, nbytes: int, asks: bool) -> None:
        """A message goes to the client; `asks` tells whether it has to answer."""
        self._down += nbytes
        if asks and self._asked is None:
            self._asked = time.monotonic()

    def received(self, nbytes: int) -> None:
        """A message came from the client."""
        self._seen = time.time()
        self._up += nbytes
        if self._asked is not None:
            took = time.monotonic() - self._asked
            self._answer = took if self._answer is None else self._answer + _NEWEST * (took - self._answer)
        self._asked = self._awaited = None

    def awaited(self) -> None:
        """The run cannot go on without a message of the client. Call it as often as you like."""
        if self._awaited is None:
            self._awaited = time.monotonic()

    def greeted(self) -> None:
        """The client has a new connection, and nothing was asked on it yet."""
        self._seen = time.time()
        self._asked = self._awaited = self._lost = None

    def lost(self) -> None:
        """The client has no connection any more."""
        self._lost = time.monotonic()

    @property
    def silent(self) -> float:
        """For how many seconds the run has waited for the client."""
        return 0.0 if self._awaited is None else time.monotonic() - self._awaited

    @property
    def absent(self) -> float:
        """For how many seconds the client has had no connection."""
        return 0.0 if self._lost is None else time.monotonic() - self._lost

    def to_json(self) -> dict[str, Any]:
        """The activity as plain JSON: `seen` is a time since 1970, the others are seconds and bytes."""
        owes = [since for since in (self._asked, self._awaited) if since is not None]
        return {
            "seen": self._seen,
            "answer_seconds": self._answer,
            "pending_seconds": time.monotonic() - min(owes) if owes else None,
            "up": self._up,
            "down": self._down,
        }
