"""Several messages in one packet, as a client sends them, and packets that are damaged inside."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cutlayer.wire.messages.base import Message, pack
from cutlayer.wire.messages.envelope import MOST_MESSAGES, UP, opener, seal

opened: Callable[[bytes], Any] = opener(UP, "Up")


def sealed(number: int, received: int, messages: Sequence[bytes], more: bool = False) -> bytes:
    """All messages in one packet, the first with that number."""
    if not messages:
        return b""
    first, *further = messages
    return seal(UP, number, received, (first,), more, [(one,) for one in further])


@dataclass(frozen=True)
class Damaged:
    """A packet that is not as it should be, and the messages that it should have had."""

    honest: list[bytes]
    change: Callable[[int, int], bytes]

    def bytes(self, number: int, received: int) -> bytes:
        """The packet, where messages of that number are expected."""
        return self.change(number, received)


def damage(rng: random.Random, answers: list[Message]) -> Damaged:
    """A packet of these answers in which something is wrong. None of its kinds is silence."""
    honest = [b"".join(pack(answer)) for answer in answers]
    at = rng.randrange(len(honest))

    def inside(changed: bytes) -> list[bytes]:
        return [*honest[:at], changed, *honest[at + 1 :]]

    one = honest[at]
    end = rng.randrange(1, 9)
    kinds: list[Callable[[int, int], bytes]] = [
        lambda n, r: sealed(n + rng.choice([1, 1 << 40]), r, honest),
        lambda n, r: sealed(n, (1 << 62) + r, honest),
        lambda n, r: sealed(n, r, honest * (MOST_MESSAGES + 1)),
        lambda n, r: sealed(n, r, honest[:1] * 12),
        lambda n, r: sealed(n, r, [*honest, honest[-1]], more=True),
        lambda n, r: sealed(n, r, honest, more=True),
        lambda n, r: sealed(n, r, inside(b"")),
        lambda n, r: sealed(n, r, inside(one[:end])),
        lambda n, r: sealed(n, r, inside(bytes([0xFF]) + one[1:])),
        lambda n, r: sealed(n, r, [honest[0], *honest]),
        lambda n, r: sealed(n, r, honest)[: -rng.randrange(1, 6)],
        lambda n, r: sealed(n, r, honest) + b"\x7f",
    ]
    return Damaged(honest, rng.choice(kinds))
