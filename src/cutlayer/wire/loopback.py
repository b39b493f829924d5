"""Clients in the same process, reached through the very bytes that would cross a network."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from cutlayer.errors import MessageError
from cutlayer.wire.messages.base import Message
from cutlayer.wire.messages.types import parse
from cutlayer.wire.meter import Direction, Meter

#: A client: takes a message from the server, gives its answers.
Handler = Callable[[Message], Iterable[Message]]


class Loopback:
    """A transport whose clients are functions. Every message is serialized, counted and parsed again."""

    patient = True

    def __init__(self, clients: Sequence[Handler], meter: Meter | None = None) -> None:
        self.meter = Meter() if meter is None else meter
        self._clients = list(clients)
        self._inbox: list[deque[tuple[bytes, bytes]]] = [deque() for _ in clients]
        self._outbox: list[deque[tuple[bytes, bytes]]] = [deque() for _ in clients]

    def label(self, client: int) -> str:
        """See `Transport.label`."""
        return f"client {client}"

    def announce(self, clients: Iterable[int], message: Message) -> None:
        """See `Transport.announce`."""
        for client in clients:
            self._inbox[client].append(self._serialize(message, Direction.DOWN, client))

    def tell(self, clients: Iterable[int], message: Message) -> None:
        """See `Transport.tell`. Clients act on it at once."""
        for client in clients:
            self.send(client, message)

    def send(self, client: int, message: Message) -> None:
        """See `Transport.send`. The client acts on it at once."""
        self._inbox[client].append(self._serialize(message, Direction.DOWN, client))
        self._work(client)

    def receive(self, client: int) -> Message:
        """See `Transport.receive`."""
        if not self._outbox[client]:
            self._work(client)
        if not self._outbox[client]:
            raise MessageError(f"client {client} has nothing to say: the server waits for a message too many")
        return parse(*self._outbox[client].popleft())

    def ready(self, client: int) -> bool:
        """See `Transport.ready`. Clients that were sent something have answered."""
        return bool(self._outbox[client])

    def members(self) -> tuple[int, ...]:
        """See `Transport.members`."""
        return tuple(range(len(self._clients)))

    def reachable(self) -> tuple[int, ...]:
        """See `Transport.reachable`."""
        return self.members()

    def present(self, clients: Sequence[int], messages: int, at_least: int | None = None) -> tuple[int, ...]:
        """See `Transport.present`."""
        return tuple(clients)

    def fault(self, client: int, error: Exception) -> None:
        """See `Transport.fault`. In one process the client is our own code, so the error is raised."""
        raise error

    def _work(self, client: int) -> None:
        inbox = self._inbox[client]
        while inbox:
            for answer in self._clients[client](parse(*inbox.popleft())):
                self._outbox[client].append(self._serialize(answer, Direction.UP, client))

    def _serialize(self, message: Message, direction: Direction, client: int) -> tuple[bytes, bytes]:
        head, body = message.head(), message.content
        # The one place where bytes are counted.
        self.meter.add(message.kind, direction, len(body) or len(head), client)
        return head, body
