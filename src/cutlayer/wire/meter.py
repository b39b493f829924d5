"""Count the bytes that cross the network: in one place, by kind and direction."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from cutlayer.errors import InputError


class Kind(StrEnum):
    """What the bytes carry."""

    SMASHED = "smashed"
    LABELS = "labels"
    GRADIENTS = "gradients"
    SYNC = "sync"
    CONTROL = "control"


class Direction(StrEnum):
    """Which way the bytes go: UP from a client, DOWN to a client."""

    UP = "up"
    DOWN = "down"


Snapshot = dict[str, int]
# Looked up for every message, and words are as good as members: both have the same hash.
_KEYS = {(direction, kind): f"{direction}/{kind}" for direction in Direction for kind in Kind}


class Meter:
    """Serialized bytes by kind, direction and client.

    A snapshot always has the same keys (`up`, `down`, `up/smashed`, ..., `down/control`), so the
    difference of two is what a step or an epoch cost:

        >>> meter = Meter()
        >>> before = meter.snapshot()
        >>> meter.add(Kind.SMASHED, Direction.UP, 1200, client=3)
        >>> meter.since(before)["up/smashed"]
        1200
    """

    def __init__(self) -> None:
        # Streams of several clients report from threads of their own.
        self._lock = threading.Lock()
        self._counts: dict[int | None, Snapshot] = {}
        # Kept beside the counts, so that a snapshot costs the same with a thousand clients.
        self._total: Snapshot = {}

    def add(self, kind: Kind, direction: Direction, nbytes: int, client: int | None = None) -> None:
        """Count bytes that were sent. Leave `client` out for traffic that belongs to none of them."""
        if nbytes < 0:
            raise InputError(f"{nbytes} bytes cannot have been sent")
        key = _KEYS[direction, kind]
        with self._lock:
            counts = self._counts.get(client)
            if counts is None:
                counts = self._counts[client] = {}
            counts[key] = counts.get(key, 0) + nbytes
            self._total[key] = self._total.get(key, 0) + nbytes

    def add_all(self, sizes: Mapping[Kind, int], direction: Direction, client: int | None = None) -> None:
        """Count a message that carries several kinds."""
        with self._lock:
            counts = self._counts.get(client)
            if counts is None:
                counts = self._counts[client] = {}
            for kind, nbytes in sizes.items():
                key = _KEYS[direction, kind]
                counts[key] = counts.get(key, 0) + nbytes
                self._total[key] = self._total.get(key, 0) + nbytes

    def add_each(self, sizes: Mapping[Kind, int], direction: Direction, clients: Sequence[int]) -> None:
        """Count a message that goes to each of these clients."""
        with self._lock:
            for kind, nbytes in sizes.items():
                key = _KEYS[direction, kind]
                for client in clients:
                    counts = self._counts.get(client)
                    if counts is None:
                        counts = self._counts[client] = {}
                    counts[key] = counts.get(key, 0) + nbytes
                if clients:
                    self._total[key] = self._total.get(key, 0) + nbytes * len(clients)

    @contextmanager
    def apart(self) -> Iterator[Meter]:
        """What is counted inside does not belong here, but to the meter that this gives: an evaluation's."""
        other = Meter()
        with self._lock:
            training = self._counts, self._total
            self._counts, self._total = other._counts, other._total
        try:
            yield other
        finally:
            with self._lock:
                self._counts, self._total = training

    def snapshot(self) -> Snapshot:
        """All bytes so far."""
        with self._lock:
            return _complete(self._total)

    def since(self, previous: Mapping[str, int]) -> Snapshot:
        """The bytes since an earlier snapshot."""
        return {key: count - previous.get(key, 0) for key, count in self.snapshot().items()}

    def by_client(self) -> dict[int, Snapshot]:
        """The bytes so far of each client, in the order of their numbers."""
        with self._lock:
            known = sorted(client for client in self._counts if client is not None)
            return {client: _complete(self._counts[client]) for client in known}

    def state(self) -> dict[str, Any]:
        """The counts as plain JSON, for a checkpoint."""
        with self._lock:
            return {"" if client is None else str(client): dict(c) for client, c in self._counts.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on counting from a checkpoint."""
        counts = {
            int(client) if client else None: {str(key): int(n) for key, n in found.items()}
            for client, found in state.items()
        }
        total: Snapshot = {}
        for found in counts.values():
            for key, n in found.items():
                total[key] = total.get(key, 0) + n
        with self._lock:
            self._counts, self._total = counts, total


def _complete(counts: Mapping[str, int]) -> Snapshot:
    """Counts with a key for each kind, and totals for each direction."""
    total: Snapshot = {}
    for direction in Direction:
        by_kind = {f"{direction}/{kind}": counts.get(f"{direction}/{kind}", 0) for kind in Kind}
        total[str(direction)] = sum(by_kind.values())
        total |= by_kind
    return total
