"""What the client of a U-shape says of a batch of the test set, whose targets only it has."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from cutlayer.errors import MessageError
from cutlayer.wire.messages.base import Message, WithBody


@dataclass(frozen=True, slots=True)
class Scores(Message):
    """U-shape: how one batch of the test set did, as only the client can tell."""

    code: ClassVar[int] = 9
    layout: ClassVar[str] = "IdII"
    samples: int
    loss: float
    """Summed over the samples."""
    top1: int
    top5: int


@dataclass(frozen=True, slots=True)
class Sums(WithBody):
    """U-shape: what one batch of the test set adds to the sums that a task's metrics are made of.

    Classification has Scores. The body is float64 numbers, little-endian, as many as the task has sums.
    """

    code: ClassVar[int] = 13
    layout: ClassVar[str] = "I"
    samples: int

    @staticmethod
    def pack_values(values: Sequence[float]) -> bytes:
        """The body."""
        return struct.pack(f"<{len(values)}d", *values)

    @property
    def values(self) -> tuple[float, ...]:
        """The sums."""
        if len(self.body) % 8:
            raise MessageError(f"Sums: {len(self.body)} bytes are no list of numbers")
        return struct.unpack(f"<{len(self.body) // 8}d", self.body)
