"""How the training loop reaches its clients, wherever they are."""

from collections.abc import Iterable
from typing import Protocol

from cutlayer.wire.messages import Message
from cutlayer.wire.meter import Meter


class Transport(Protocol):
    """The server's view of all connections. Client numbers are those of the run.

    The loop calls from one thread and asks for messages in client order; a network transport receives in
    the background, in any order. Within one client messages keep their order.
    """

    meter: Meter
    """Counts every message. It may be exchanged, as for an evaluation."""

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
