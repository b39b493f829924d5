"""How the split server reaches its clients, in the same process or over a network."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from cutlayer.wire.messages.base import Message
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
        """Counts every message."""

    def label(self, client: int) -> str:
        """How logs and messages call a client: `client 3`, or `client 3 (anna)` where names are known."""

    def announce(self, clients: Iterable[int], message: Message) -> None:
        """Send one message to many clients, who may then work at the same time.

        In one process each begins only when its answer is asked for, which keeps memory small.
        """

    def tell(self, clients: Iterable[int], message: Message) -> None:
        """Send one message to many clients that need not answer. It may go out with the next one to each."""

    def send(self, client: int, message: Message) -> None:
        """Send a message to one client."""

    def receive(self, client: int) -> Message:
        """The client's next message. Waits for it."""

    def ready(self, client: int) -> bool:
        """Whether all that the client sends at the end of its step is there, so that nobody would wait."""

    def members(self) -> tuple[int, ...]:
        """The clients that take part at the moment."""

    def reachable(self) -> tuple[int, ...]:
        """Those of them that have a connection now."""

    def present(self, clients: Sequence[int], messages: int, at_least: int | None = None) -> tuple[int, ...]:
        """Those from whom so many messages are there, or will be if the transport is patient.

        An impatient transport waits until its deadline. Who has not answered then is a member no more, if at
        least `at_least` members are left (None: its quorum); until there are, it waits on.
        """

    def fault(self, client: int, error: Exception) -> None:
        """The client broke the protocol. Disconnect it and tell it why; returns if the step can go on."""
