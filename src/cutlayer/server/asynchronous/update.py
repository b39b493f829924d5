"""One update of mode async: who is in it, what is recorded, and what a gradient of some age counts."""

import math
from collections import Counter
from dataclasses import dataclass, field

from cutlayer.protocol.plan import Step
from cutlayer.wire.messages.types import Report


def discount(age: int) -> float:
    """What a gradient that is so many updates old counts, of a fresh one.

    >>> discount(0), discount(3)
    (1.0, 0.5)
    """
    return 1.0 / math.sqrt(1 + age)


@dataclass
class Update:
    """One update in the making: who has arrived, and what is recorded of it."""

    step: Step
    clients: list[int] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    ages: list[int] = field(default_factory=list)
    discarded: int = 0
    """How many answers were too old."""
    raw: Counter[str] = field(default_factory=Counter)
    bits: dict[str, float] = field(default_factory=dict)
