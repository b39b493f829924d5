"""Clients that say that training diverged: most are believed, a few are at fault.

Clients that hold the same weights find out in the same step, so the others get a moment to say so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from cutlayer.errors import NonFiniteError
from cutlayer.wire.grpc.peer import Peer

# How long a client's word that training diverged waits for that of the others, in seconds.
_GRACE = 5.0


class Claims:
    """What clients claim, from the first look on until nobody claims anything. `label` names a client."""

    def __init__(self, label: Callable[[int], str]) -> None:
        self._label = label
        self._first: float | None = None
        """When somebody was first seen to claim it."""

    def at_fault(self, claims: Sequence[Peer], members: Sequence[Peer]) -> Sequence[Peer]:
        """Those who claim it while most members do not. Raises NonFiniteError if most do.

        Nobody yet, while others may still say the same.
        """
        claims = [peer for peer in claims if peer in members]
        if not claims:
            self._first = None
            return ()
        if 2 * len(claims) > len(members):
            told = "; ".join(f"{self._label(peer.number)}: {peer.failure.reason}" for peer in claims[:3])
            raise NonFiniteError(told)
        now = time.monotonic()
        self._first = self._first or now
        answered = all(peer.inbox for peer in members if peer not in claims)
        return claims if answered or now - self._first > _GRACE else ()
