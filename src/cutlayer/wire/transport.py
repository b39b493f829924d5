"""How the split server reaches its clients, in the same process or over a network."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from cutlayer.wire.messages.types import Message
from cutlayer.wire.meter import Meter


class Transport(Protocol):
    """The server's view of all connections. Client numbers are those of the run.

    The server calls from one thread and asks for messages in client order; a network transport receives in
    the background, in any order. Within one client messages keep their order.
    """

    @property
    def patient(self) -> bool:
        """Whether every client that is asked answers in the end. If not, a step goes on with those who do."""

    @property
    def meter(self) -> Meter:
        """Counts every message: of training, or inside `apart` what does not belong to it."""

    def apart(self) -> AbstractContextManager[Meter]:
        """What is sent inside does not count as traffic of training, but on the meter that this gives."""

    def label(self, client: int) -> str:
        """How logs and messages call a client: `client 3`, or `client 3 (anna)` where names are known."""

    def announce(self, clients: Iterable[int], message: Message) -> None:
        """Send one message to many clients, who may then work at the same time.

        In one process each begins only when its answer is asked for, which keeps memory small.
        """

    def send(self, client: int, message: Message) -> None:
        """Send a message to one client."""

    def receive(self, client: int) -> Message:
        """The client's next message. Waits for it."""

    def ready(self, client: int) -> bool:
        """Whether all that the client sends at the end of its step is there, so that nobody would wait."""

    def members(self) -> tuple[int, ...]:
        """The clients that take part at the moment."""

    def present(self, clients: Sequence[int], messages: int, at_least: int | None = None) -> tuple[int, ...]:
        """Those from whom so many messages are there, or will be if the transport is patient.

        An impatient transport waits until its deadline. Who has not answered then is a member no more, if at
        least `at_least` members are left (None: its quorum); until there are, it waits on.
        """

    def fault(self, client: int, error: Exception) -> None:
        """The client broke the protocol. Disconnect it and tell it why; returns if the step can go on."""


class Metered:
    """The part of a transport that counts: one meter for training, and others for what is apart from it."""

    def __init__(self, meter: Meter | None = None) -> None:
        self._meter = Meter() if meter is None else meter

    @property
    def meter(self) -> Meter:
        """See `Transport.meter`."""
        return self._meter

    @contextmanager
    def apart(self) -> Iterator[Meter]:
        """See `Transport.apart`."""
        training, self._meter = self._meter, Meter()
        try:
            yield self._meter
        finally:
            self._meter = training
