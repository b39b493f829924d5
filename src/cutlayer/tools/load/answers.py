"""What a light client answers: bytes that were prepared. It imports no PyTorch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from cutlayer.errors import MessageError
from cutlayer.wire.messages.base import Message
from cutlayer.wire.messages.protobuf import message_class
from cutlayer.wire.messages.types import (
    Ask,
    BeginStep,
    Evaluate,
    Gradient,
    Labels,
    Report,
    Share,
    Smashed,
    State,
    SyncDown,
    SyncUp,
)


@dataclass(frozen=True)
class Prepared:
    """Everything that light clients ever send, as bytes: see `prepare`."""

    ready: bytes
    """The Ready of client 0, serialized. The others have no test part."""
    frame: bytes
    labels: bytes
    batch: int
    """Samples of a batch."""
    test: tuple[bytes, bytes, int]
    """The frame and the labels of a test batch, and its samples."""
    shares: dict[int, tuple[bytes, int]]
    """The body of a SyncUp for each kind of share, and the length of its first frame."""
    state: bytes
    own_state: bytes

    def ready_of(self, client: int) -> Any:
        """What a client says of its data."""
        ready = message_class("Ready").FromString(self.ready)
        if client:
            ready.test_samples = 0
        return ready


class LightClient:
    """One client: the answers to the server's messages."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._share = Share.NOTHING

    def answers(self, message: Message) -> list[Message]:
        """The answers to a message. Raises MessageError for one that such clients cannot answer."""
        prepared, number = self._prepared, message.number
        if isinstance(message, BeginStep):
            self._share = message.share
            return [
                Smashed(number, prepared.frame),
                Labels(number, prepared.labels, prepared.batch),
            ]
        if isinstance(message, Gradient):
            report = Report(number, prepared.batch, math.nan, math.nan, 0.0, 0.0, 0.0, 0.0, 0.0)
            return [report] if self._share == Share.NOTHING else [self._shared(number, self._share), report]
        if isinstance(message, Evaluate):
            frame, labels, samples = prepared.test
            if (message.first, message.last) != (0, samples):
                raise MessageError(f"the server asks for test samples {message.first} to {message.last}")
            return [Smashed(number, frame), Labels(number, labels, samples)]
        if isinstance(message, Ask):
            if message.share == Share.STATE:
                return [State(number, prepared.state)]
            if message.share == Share.OWN:
                return [State(number, prepared.own_state)]
            return [self._shared(number, message.share)]
        if isinstance(message, SyncDown | State):
            return []
        raise MessageError(f"the server sent a {type(message).__name__}, which such clients cannot answer")

    def _shared(self, number: int, share: Share) -> SyncUp:
        body, first = self._prepared.shares[int(share)]
        return SyncUp(number, body, share, first)
