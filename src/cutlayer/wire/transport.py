"""How the training loop reaches its clients, wherever they are."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from cutlayer.wire.messages.types import Message
from cutlayer.wire.meter import Meter


class Transport(Protocol):
    """The server's view of all connections. Client numbers are those of the run.

    The loop calls from one thread and asks for messages in client order; a network transport receives in
    the background, in any order. Within one client messages keep their order.
    """

    meter: Meter
    """Counts every message. It may be exchanged, as for an evaluation."""

    patient: bool
    """Whether every client that is asked answers in the end. If not, a step goes on with those who do."""

    def announce(self, clients: Iterable[int], message: Message) -> None:
        """Send one message to many clients, who may then work at the same time.

        In one process each begins only when its answer is asked for, which keeps memory small.
        """

    def send(self, client: int, message: Message) -> None:
        """Send a message to one client."""

    def receive(self, client: int) -> Message:
        """The client's next message. Waits for it."""

    def ready(self, client: int) -> bool:
        """Whether all that the client sends at the end of its turn is there, so that nobody would wait."""

    def members(self) -> tuple[int, ...]:
        """The clients that take part at the moment."""

    def present(self, clients: Sequence[int], messages: int, at_least: int | None = None) -> tuple[int, ...]:
        """Those from whom so many messages are there, or will be if the transport is patient.

        An impatient transport waits until its deadline. Who has not answered then is a member no more, if at
        least `at_least` members are left (None: its quorum); until there are, it waits on.
        """

    def fault(self, client: int, error: Exception) -> None:
        """The client sent something that cannot be right. The caller raises the error, or goes on without."""


@contextmanager
def apart(transport: Transport) -> Iterator[Meter]:
    """What is sent inside does not count as the traffic of training, but on the meter that this gives."""
    training, transport.meter = transport.meter, Meter()
    try:
        yield transport.meter
    finally:
        transport.meter = training
