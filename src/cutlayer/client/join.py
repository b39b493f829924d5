"""`join`: a client that takes part in a run over the network until the server says goodbye.

What computes is a participant: with PyTorch (`client.participant`) or without (`device.participant`).
Nothing here imports PyTorch by itself.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from cutlayer.client.stream_order import AggregatorStream
from cutlayer.errors import CutlayerError, DivergedError, NonFiniteError, RefusedError, RollbackError
from cutlayer.interrupt import Interrupt
from cutlayer.wire.grpc.connection import Connection, Event
from cutlayer.wire.link.bandwidth import Gauge
from cutlayer.wire.link.model import Link
from cutlayer.wire.messages.base import Message, pack
from cutlayer.wire.messages.types import Combine, Placeholder, Report, State, SyncUp, unpack
from cutlayer.wire.security.credentials import ClientSecurity

SERVER, AGGREGATOR = "server", "aggregator"


@dataclass
class Participation:
    """What a client has done."""

    client: int = 0
    steps: int = 0
    samples: int = 0
    reason: str = ""


class Participates(Protocol):
    """What computes for a client, as this file uses it."""

    client: int
    settings: str
    gauge: Gauge

    @property
    def largest_message(self) -> int:
        """Bytes of the largest message that an honest server sends, once the offer was taken."""

    @property
    def epochs(self) -> int:
        """How many epochs the run has; 0 before the server's offer."""

    def prepare(self, offer: Any) -> Any:
        """Load what the run needs; what to say of it."""

    def begin(self, welcome: Any) -> None:
        """The run begins, or goes on from a checkpoint."""

    def handle(self, message: Message) -> Iterable[Message]:
        """The answers to a message."""

    def exchange(self, gloo: Any) -> Any:
        """This client's part where clients average among themselves; None if the server does."""

    def exchange_codecs(self) -> Any:
        """The run's codecs, for shares of other clients."""


class _TaggedQueue:
    """One queue for the events of both connections."""

    def __init__(self, shared: queue.Queue[tuple[str, Event]], origin: str) -> None:
        self._shared, self._origin = shared, origin

    def put(self, event: Event) -> None:
        self._shared.put((self._origin, event))

    def qsize(self) -> int:
        return self._shared.qsize()


class NetworkClient:
    """A participant and its connections: to the server, and to the aggregator if that runs alone."""

    def __init__(
        self,
        address: str,
        participant: Participates,
        security: ClientSecurity,
        *,
        claims: int | None = None,
        retry: float = 300.0,
        link: Link | None = None,
        gloo: Any = None,
        note: Callable[[str], None] = lambda text: None,
        on_step: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        """`on_step` is told of each step that this client did: how many of the run are done, of how many."""
        self.participant = participant
        self.done = Participation()
        self.address = address
        self._security = security
        self._gloo = gloo
        self._note = note
        self._on_step = on_step
        self._total = 0
        self._events: queue.Queue[tuple[str, Event]] = queue.Queue()
        self._aggregator: AggregatorStream | None = None
        self._exchange: Any = None

        def connect(where: str, origin: str) -> Connection:
            number = claims if origin == SERVER else participant.client
            return Connection(
                where,
                security,
                claims=number,
                retry=retry,
                note=note,
                link=link,
                events=_TaggedQueue(self._events, origin),
                gauge=participant.gauge if origin == SERVER else None,
                keeps_place=origin == SERVER,
            )

        self._connect = connect
        self.server = connect(address, SERVER)

    def run(self, interrupt: Interrupt) -> Participation:
        """Take part until the run is complete."""
        while not interrupt.requested:
            try:
                origin, event = self._events.get(timeout=0.2)
            except queue.Empty:
                continue
            if event.kind == "lost":
                raise event.content
            if event.kind == "goodbye":
                code, reason = event.content
                if origin == SERVER and code == "DONE":
                    self.done.reason = reason
                    return self.done
                raise RefusedError(f"{self.address if origin == SERVER else AGGREGATOR}: {reason}")
            try:
                (self._from_server if origin == SERVER else self._from_aggregator)(event)
            except NonFiniteError as error:
                self.server.failed(str(error), diverged=True)
                raise DivergedError(
                    f"training diverged at this client: {error}. The server was told and keeps its last "
                    "good checkpoint; there, try a lower learning rate or a warm-up",
                    self.done.steps,
                ) from error
            except CutlayerError as error:
                self.server.failed(str(error))
                raise
        raise KeyboardInterrupt

    def close(self) -> None:
        """Leave."""
        self.server.close()
        if self._gloo is not None:
            self._gloo.close()
        if self._aggregator is not None:
            self._aggregator.connection.close()

    def _from_server(self, event: Event) -> None:
        if event.kind == "offer":
            ready = self.participant.prepare(event.content)
            self.server.take_at_most(self.participant.largest_message)
            self._average_among_clients()
            ready.meeting = "" if self._exchange is None else self._exchange.rendezvous()
            self.server.prepared(event, ready)
            self.done.client = self.participant.client
            if event.content.aggregator and self._aggregator is None:
                self._security.check_sent_on(self.address, event.content.aggregator)
                connection = self._connect(event.content.aggregator, AGGREGATOR)
                self._aggregator = AggregatorStream(connection, self.participant.largest_message)
        elif event.kind == "welcome":
            welcome = event.content
            self.participant.begin(welcome)
            self._total = welcome.steps_per_epoch * self.participant.epochs
            if self._exchange is not None:
                self._exchange.begin(self.participant.exchange_codecs(), welcome.meeting, welcome.era)
            if self._aggregator is not None:
                self._aggregator.begin(welcome.era)
            self._note(f"client {self.participant.client} takes part from step {welcome.step}")
        elif event.conversation is self.server.conversation:
            if self._aggregator is None:
                self._handle(event, unpack(event.content))
            else:
                self._aggregator.expect(event)
                self._proceed(self._aggregator)

    def _average_among_clients(self) -> None:
        if self._exchange is None:
            self._exchange = self.participant.exchange(self._gloo)

    def _from_aggregator(self, event: Event) -> None:
        stream = self._aggregator
        if stream is None:
            return
        if event.kind == "offer":
            if event.content.settings != self.participant.settings:
                raise RefusedError(
                    "the aggregator has other settings than the server; start both with the same"
                )
            stream.connection.prepared(event, self.participant.prepare(event.content))
        elif event.kind == "welcome":
            stream.welcomed(event)
        elif event.conversation is stream.connection.conversation:
            stream.arrived(event.content)
            self._proceed(stream)

    def _proceed(self, stream: AggregatorStream) -> None:
        """Handle the server's messages in order; for a placeholder, the aggregator's in its place."""
        while stream.pending:
            event = stream.pending[0]
            message = unpack(event.content)
            if isinstance(message, Placeholder):
                found = stream.take()
                if found is None:
                    return
                message = unpack(found)
            stream.pending.popleft()
            self._handle(event, message)

    def _combine(self, event: Event, exchange: Any, order: Combine) -> None:
        try:
            mean = exchange.combine(order)
        except RollbackError as error:
            self._note(f"{error}; the run goes back to its last checkpoint")
            self.server.forget()
            return
        if mean is not None:
            self._handle(event, mean)

    def _handle(self, event: Event, message: Message) -> None:
        if self._exchange is not None and isinstance(message, Combine):
            self._combine(event, self._exchange, message)
            return
        replies = []
        for answer in self.participant.handle(message):
            if self._exchange is not None and isinstance(answer, SyncUp):
                self._exchange.keep(answer)
                answer = Placeholder(answer.number)
            if self._aggregator is not None and isinstance(answer, (SyncUp, State)):
                self._aggregator.send(pack(answer))
                answer = Placeholder(answer.number)
            replies.append(pack(answer))
            if isinstance(answer, Report):
                self.done.steps += 1
                self.done.samples += answer.samples
                self._on_step(answer.number + 1, self._total)
        self.server.send(event.conversation, *replies)


def join(
    address: str,
    participant: Participates,
    security: ClientSecurity,
    *,
    claims: int | None = None,
    retry: float = 300.0,
    link: Link | None = None,
    gloo: Any = None,
    note: Callable[[str], None] = lambda text: None,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> Participation:
    """Take part until the run is complete. Raises what keeps this client from taking part."""
    with Interrupt() as interrupt:
        client = NetworkClient(
            address,
            participant,
            security,
            claims=claims,
            retry=retry,
            link=link,
            gloo=gloo,
            note=note,
            on_step=on_step,
        )
        try:
            return client.run(interrupt)
        finally:
            client.close()
