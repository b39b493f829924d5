"""One process with many light clients, each with a connection of its own: the one that real clients use.

It imports no PyTorch.
"""

from __future__ import annotations

import queue
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from cutlayer.errors import MessageError
from cutlayer.tools.load.answers import LightClient, Prepared
from cutlayer.wire.grpc.connection import Connection, Event
from cutlayer.wire.messages.base import pack
from cutlayer.wire.messages.types import BeginStep, Gradient, unpack
from cutlayer.wire.security.credentials import ClientSecurity

# Connections that one process makes at the same time: servers bound those that have said nothing yet.
_AT_ONCE = 12
# Latencies that one process keeps: the newest.
_MOST = 1 << 17
_TELL = 0.3


@dataclass
class Tally:
    """What a process's clients have seen so far: plain numbers, so that another process can take them."""

    connected: int = 0
    """Clients that have got the settings of the run."""
    members: int = 0
    """Clients that have been welcomed."""
    ended: int = 0
    steps: int = 0
    """Batches that were answered with a gradient."""
    up: int = 0
    down: int = 0
    connect_seconds: list[float] = field(default_factory=list)
    latencies: array[float] = field(default_factory=lambda: array("d"))
    """Seconds from sending a batch to its gradient."""
    errors: Counter[str] = field(default_factory=Counter)


@dataclass
class _Light:
    client: LightClient
    connection: Connection
    began: float
    offered: bool = False
    welcomed: bool = False
    sent: float = 0.0


class LightClients:
    """Clients on one queue of events. `run` returns when all have ended, or when it is told to stop."""

    def __init__(
        self,
        address: str,
        identities: Sequence[tuple[ClientSecurity, int | None]],
        prepared: Prepared,
        *,
        retry: float = 60.0,
    ) -> None:
        """One client for each of `identities`: its credentials, and the number that it claims."""
        self.tally = Tally()
        self._address = address
        self._prepared = prepared
        self._retry = retry
        self._unborn = list(reversed(identities))
        self._events: queue.Queue[tuple[int, Event]] = queue.Queue()
        self._clients: dict[int, _Light] = {}
        self._made = self._connecting = 0

    def run(self, tell: Callable[[Tally], None], stopped: Callable[[], bool]) -> Tally:
        """Take part until the server says goodbye to all; `tell` gets what was seen, a few times a second."""
        told = 0.0
        try:
            while (self._clients or self._unborn) and not stopped():
                self._connect_some()
                with suppress(queue.Empty):
                    self._handle(*self._events.get(timeout=0.1))
                if time.monotonic() - told > _TELL:
                    tell(self.tally)
                    told = time.monotonic()
        finally:
            for light in self._clients.values():
                light.connection.close()
        return self.tally

    def _connect_some(self) -> None:
        while self._unborn and self._connecting < _AT_ONCE:
            security, claims = self._unborn.pop()
            events = _Tagged(self._events, self._made)
            connection = Connection(self._address, security, claims=claims, retry=self._retry, events=events)
            light = _Light(LightClient(self._prepared), connection, time.monotonic())
            self._clients[self._made] = light
            self._made += 1
            self._connecting += 1

    def _handle(self, index: int, event: Event) -> None:
        light = self._clients.get(index)
        if light is None:
            return
        if event.kind == "offer":
            self._offered(light)
            light.connection.prepared(event, self._prepared.ready_of(event.content.client))
        elif event.kind == "welcome":
            self.tally.members += not light.welcomed
            light.welcomed = True
        elif event.kind in ("goodbye", "lost"):
            self._end(index, light, event)
        elif event.conversation is light.connection.conversation:
            self._answer(light, event)

    def _offered(self, light: _Light) -> None:
        if not light.offered:
            light.offered = True
            self._connecting -= 1
            self.tally.connected += 1
            self.tally.connect_seconds.append(time.monotonic() - light.began)

    def _answer(self, light: _Light, event: Event) -> None:
        try:
            message = unpack(event.content)
            answers = light.client.answers(message)
        except MessageError as error:
            self.tally.errors[str(error)[:200]] += 1
            return
        self.tally.down += message.size
        self.tally.up += sum(answer.size for answer in answers)
        if isinstance(message, Gradient):
            self.tally.steps += 1
            if len(self.tally.latencies) >= _MOST:
                del self.tally.latencies[: _MOST // 2]
            self.tally.latencies.append(time.monotonic() - light.sent)
        light.connection.send(event.conversation, *map(pack, answers))
        if isinstance(message, BeginStep):
            light.sent = time.monotonic()

    def _end(self, index: int, light: _Light, event: Event) -> None:
        self._connecting -= not light.offered
        light.connection.close()
        del self._clients[index]
        self.tally.ended += 1
        if event.kind == "lost":
            self.tally.errors[str(event.content)[:200]] += 1
        elif event.content[0] != "DONE":
            self.tally.errors[event.content[1][:200]] += 1


class _Tagged:
    """One queue for the events of many connections."""

    def __init__(self, shared: queue.Queue[tuple[int, Event]], index: int) -> None:
        self._shared, self._index = shared, index

    def put(self, event: Event) -> None:
        self._shared.put((self._index, event))
