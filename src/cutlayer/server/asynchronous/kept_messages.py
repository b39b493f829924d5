"""A transport that keeps a client's messages: those that it was sent, and those that nobody takes yet.

What a client was sent since its batch began can be sent again, to one that comes back and after a checkpoint:
so no batch is lost. What a client has answered can be put aside, so that it can be asked something else.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

from cutlayer.wire.messages.base import Message
from cutlayer.wire.meter import Meter
from cutlayer.wire.transport import Transport


class KeptMessages:
    """See `Transport`, whose methods go to the transport underneath."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._sent: defaultdict[int, list[Message]] = defaultdict(list)
        self._held: defaultdict[int, deque[Message]] = defaultdict(deque)

    def sent(self, client: int) -> list[Message]:
        """What the client was sent since its batch began."""
        return list(self._sent[client])

    def forget(self, client: int) -> None:
        """The client's batch is over, or begins anew: nothing of it is kept."""
        self._sent.pop(client, None)
        self._held.pop(client, None)

    def hold(self, client: int, messages: int) -> int:
        """Put so many answers of the client aside for `receive`, unless they are already. Their bytes."""
        held = self._held[client]
        while len(held) < messages:
            held.append(self._transport.receive(client))
        return sum(message.size for message in held)

    def holds(self, client: int) -> bool:
        """Whether answers of the client were put aside."""
        return bool(self._held[client])

    @property
    def patient(self) -> bool:
        """See `Transport.patient`."""
        return self._transport.patient

    @property
    def meter(self) -> Meter:
        """See `Transport.meter`."""
        return self._transport.meter

    def label(self, client: int) -> str:
        """See `Transport.label`."""
        return self._transport.label(client)

    def announce(self, clients: Iterable[int], message: Message) -> None:
        """See `Transport.announce`."""
        for client in clients:
            self.send(client, message)

    def send(self, client: int, message: Message) -> None:
        """See `Transport.send`."""
        self._sent[client].append(message)
        self._transport.send(client, message)

    def tell(self, clients: Iterable[int], message: Message) -> None:
        """See `Transport.tell`."""
        self.announce(clients, message)

    def receive(self, client: int) -> Message:
        """See `Transport.receive`. What was put aside comes first."""
        held = self._held[client]
        return held.popleft() if held else self._transport.receive(client)

    def ready(self, client: int) -> bool:
        """See `Transport.ready`."""
        return self.holds(client) or self._transport.ready(client)

    def members(self) -> tuple[int, ...]:
        """See `Transport.members`."""
        return self._transport.members()

    def reachable(self) -> tuple[int, ...]:
        """See `Transport.reachable`."""
        return self._transport.reachable()

    def present(self, clients: Sequence[int], messages: int, at_least: int | None = None) -> tuple[int, ...]:
        """See `Transport.present`. Whoever has answered is there."""
        if all(len(self._held[client]) >= messages for client in clients):
            return tuple(clients)
        return self._transport.present(clients, messages, at_least)

    def fault(self, client: int, error: Exception) -> None:
        """See `Transport.fault`."""
        self._held.pop(client, None)
        self._transport.fault(client, error)
