"""`join`: a client that takes part in a run over the network until the server says goodbye."""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import dataclass

import torch

from cutlayer.aggregation.among_clients import AmongClients
from cutlayer.aggregation.gloo import Mesh
from cutlayer.client.participant import Device
from cutlayer.client.stream_order import Detour
from cutlayer.errors import CutlayerError, DivergedError, NonFiniteError, RefusedError, RollbackError
from cutlayer.interrupt import Interrupt
from cutlayer.wire.grpc.connection import Connection, Event
from cutlayer.wire.link.model import Link
from cutlayer.wire.messages.parse import unpack
from cutlayer.wire.messages.types import Combine, Elsewhere, Message, Report, State, SyncUp, pack
from cutlayer.wire.security.credentials import ClientSecurity

SERVER, AGGREGATOR = "server", "aggregator"


@dataclass
class Taken:
    """What a client has done."""

    client: int = 0
    steps: int = 0
    samples: int = 0
    reason: str = ""


class _From:
    """One queue for the events of both connections."""

    def __init__(self, shared: queue.Queue[tuple[str, Event]], origin: str) -> None:
        self._shared, self._origin = shared, origin

    def put(self, event: Event) -> None:
        self._shared.put((self._origin, event))


class Client:
    """A device and its connections: to the server, and to the aggregator if that runs alone."""

    def __init__(
        self,
        address: str,
        device: Device,
        security: ClientSecurity,
        *,
        claims: int | None = None,
        retry: float = 300.0,
        link: Link | None = None,
        mesh: Mesh | None = None,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.device = device
        self.taken = Taken()
        self.address = address
        self._note = note
        self._events: queue.Queue[tuple[str, Event]] = queue.Queue()
        self._detour: Detour | None = None
        self._among = AmongClients(mesh or Mesh())

        def connect(where: str, origin: str) -> Connection:
            events = _From(self._events, origin)
            number = claims if origin == SERVER else device.client
            return Connection(
                where,
                security,
                claims=number,
                retry=retry,
                note=note,
                link=link,
                events=events,
                gauge=device.gauge if origin == SERVER else None,
            )

        self._connect = connect
        self.server = connect(address, SERVER)

    def run(self, interrupt: Interrupt) -> Taken:
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
                    self.taken.reason = reason
                    return self.taken
                raise RefusedError(f"{self.address if origin == SERVER else AGGREGATOR}: {reason}")
            try:
                (self._from_server if origin == SERVER else self._from_aggregator)(event)
            except NonFiniteError as error:
                self.server.failed(str(error), diverged=True)
                raise DivergedError(
                    f"training diverged at this client: {error}. The server was told and keeps its last "
                    "good checkpoint; there, try a lower learning rate or a warm-up",
                    self.taken.steps,
                ) from error
            except CutlayerError as error:
                self.server.failed(str(error))
                raise
        raise KeyboardInterrupt

    def close(self) -> None:
        """Leave."""
        self.server.close()
        self._among.close()
        if self._detour is not None:
            self._detour.connection.close()

    def _from_server(self, event: Event) -> None:
        if event.kind == "offer":
            ready = self.device.prepare(event.content)
            ready.meeting = self._among.prepare(self.device)
            self.server.prepared(event, ready)
            self.taken.client = self.device.client
            if event.content.aggregator and self._detour is None:
                self._detour = Detour(self._connect(event.content.aggregator, AGGREGATOR))
        elif event.kind == "welcome":
            self.device.begin(event.content)
            self._among.begin(self.device, event.content)
            if self._detour is not None:
                self._detour.begin(event.content.era)
            self._note(f"client {self.device.client} takes part from step {event.content.step}")
        elif event.conversation is self.server.conversation:
            if self._among.active:
                self._handle_among(event, unpack(event.content))
            elif self._detour is None:
                self._handle(event, unpack(event.content))
            else:
                self._detour.held.append(event)
                self._proceed(self._detour)

    def _from_aggregator(self, event: Event) -> None:
        detour = self._detour
        if detour is None:
            return
        if event.kind == "offer":
            if event.content.settings != self.device.settings:
                raise RefusedError(
                    "the aggregator has other settings than the server; start both with the same"
                )
            detour.connection.prepared(event, self.device.prepare(event.content))
        elif event.kind == "welcome":
            detour.welcomed(event)
        elif event.conversation is detour.connection.conversation:
            detour.arrived(event.content)
            self._proceed(detour)

    def _proceed(self, detour: Detour) -> None:
        """Handle the server's messages in order; where one says so, the aggregator's in its place."""
        while detour.held:
            event = detour.held[0]
            message = unpack(event.content)
            if isinstance(message, Elsewhere):
                found = detour.take()
                if found is None:
                    return
                message = unpack(found)
            detour.held.popleft()
            self._handle(event, message)

    def _handle_among(self, event: Event, message: Message) -> None:
        """As `_handle`, where clients average among themselves."""
        if not isinstance(message, Combine):
            self._handle(event, message)
            return
        try:
            mean = self._among.combine(message)
        except RollbackError as error:
            self._note(f"{error}; the run goes back to its last checkpoint")
            self.server.forget()
            return
        if mean is not None:
            self._handle(event, mean)

    def _handle(self, event: Event, message: Message) -> None:
        for answer in self.device.handle(message):
            if self._among.active and isinstance(answer, SyncUp):
                self._among.keep(answer)
                answer = Elsewhere(answer.number)
            if self._detour is not None and isinstance(answer, (SyncUp, State)):
                self._detour.send(pack(answer))
                answer = Elsewhere(answer.number)
            self.server.send(event.conversation, pack(answer))
            if isinstance(answer, Report):
                self.taken.steps += 1
                self.taken.samples += answer.samples


def join(
    address: str,
    device: Device,
    security: ClientSecurity,
    *,
    claims: int | None = None,
    retry: float = 300.0,
    link: Link | None = None,
    mesh: Mesh | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> Taken:
    """Take part until the run is complete. Raises what keeps this client from taking part."""
    with torch.random.fork_rng(devices=[]), Interrupt() as interrupt:
        client = Client(
            address, device, security, claims=claims, retry=retry, link=link, mesh=mesh, note=note
        )
        try:
            return client.run(interrupt)
        finally:
            client.close()
