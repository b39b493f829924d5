"""The server's end of all connections: the transport over gRPC.

Training runs in its own thread and calls `send` and `receive` here; `service.py` moves the bytes on an event
loop. Both meet at the peers of `membership.py`, under one lock that nobody holds while working or waiting for
the network.

How it waits for clients, and what happens when one is lost, is in `waiting.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from cutlayer.errors import AbsentError, RollbackError
from cutlayer.wire.grpc.event_loop import background
from cutlayer.wire.grpc.membership import Check, everybody_fits
from cutlayer.wire.grpc.peer import Peer
from cutlayer.wire.grpc.waiting import MANY, Waiting
from cutlayer.wire.homes import Homes
from cutlayer.wire.limits import Limits
from cutlayer.wire.messages.base import Message, pack
from cutlayer.wire.messages.types import TYPES, Ask, BeginStep, Evaluate, Gradient, Report, Smashed, unpack
from cutlayer.wire.meter import Direction, Meter
from cutlayer.wire.policy import Policy

# How long messages to many clients wait at most for the thread that trains to have sent all, in seconds.
_HOLD = 0.02
# How long that thread goes on waiting when a message has come, for those of others, in seconds.
_NOTICE = 0.004
_REPORT = TYPES.index(Report)
# Messages that a client has to answer.
_ASKING = (Ask, BeginStep, Evaluate, Gradient, Smashed)


class GrpcTransport(Waiting):
    """The transport to all clients of a run, wherever they are."""

    def __init__(
        self,
        clients: int,
        policy: Policy | None = None,
        limits: Limits | None = None,
        *,
        check: Check = everybody_fits,
        names: Sequence[str] = (),
        note: Callable[[str], None] = lambda text: None,
        interrupted: Callable[[], bool] = lambda: False,
        homes: Homes | None = None,
    ) -> None:
        """See `Waiting`."""
        super().__init__(
            clients,
            policy,
            limits,
            check=check,
            names=names,
            note=note,
            interrupted=interrupted,
            homes=homes,
        )
        self.meter = Meter()
        # With few clients, what they do meanwhile is worth more than a message less.
        self._holds = clients >= MANY
        self._held: dict[int, Peer] = {}
        """Clients with messages that wait for others, so that they go out together."""
        self._notice_due = False
        """Whether the thread that trains will look in a moment what has come."""
        self._release_due = False
        """Whether they will be let go in a moment, whatever this thread does."""
        self.received: set[str] = set()
        """Kinds of messages that ever came in, so that a test can tell what this process has seen."""

    def announce(self, clients: Iterable[int], message: Message) -> None:
        """See `Transport.announce`."""
        self._send(clients, message)

    def tell(self, clients: Iterable[int], message: Message) -> None:
        """See `Transport.tell`."""
        self._send(clients, message)

    def send(self, client: int, message: Message) -> None:
        """See `Transport.send`."""
        self._send((client,), message)

    def receive(self, client: int) -> Message:
        """See `Transport.receive`."""
        data = self.peers[client].take_message() or self._await_message(client)
        message = unpack(data)
        self.received.add(type(message).__name__)
        self.meter.add_all(message.sizes(), Direction.UP, client)
        return message

    def _await_message(self, client: int) -> memoryview:
        peer = self.peers[client]
        began = time.monotonic()
        with self.lock:
            while (data := peer.take_message()) is None:
                if peer.conversation is None:
                    self._glance()
                    gone = f"{self.label(client)} is not there any more"
                    # As one who was ready, but died before the era began.
                    raise RollbackError(gone) if self.patient else AbsentError(gone)
                stream = peer.stream
                peer.activity.awaited()
                if stream is None:
                    began = time.monotonic()
                elif time.monotonic() - began > self.limits.silence:
                    # If it is honest it comes back and continues.
                    stream.end("AGAIN", f"no answer for {self.limits.silence:.0f} s")
                    peer.stream = None
                self._wait(peer)
            return data

    def ready(self, client: int) -> bool:
        """See `Transport.ready`."""
        # Under `drop` the weights of a mean are known only when it is clear who takes part in it.
        with self.lock:
            inbox = self.peers[client].inbox
            return self.patient and bool(inbox) and inbox[-1][0] == _REPORT

    def fault(self, client: int, error: Exception) -> None:
        """See `Transport.fault`."""
        self.expel(client, str(error))
        if self.patient:
            raise RollbackError(f"{self.label(client)} was disconnected: {error}") from error

    def _send(self, clients: Iterable[int], message: Message) -> None:
        """Send a message to each. With many clients it goes out when this thread waits, or a moment later."""
        data, size, asks = pack(message), message.size, isinstance(message, _ASKING)
        sent = []
        with self.lock:
            for client in clients:
                peer = self.peers[client]
                conversation = peer.conversation
                if conversation is None:
                    continue
                conversation.send(*data)
                peer.activity.sent(size, asks)
                if self._holds:
                    self._held[client] = peer
                elif peer.stream is not None:
                    peer.stream.wake()
                if conversation.kept_bytes > self._largest_backlog:
                    self.expel(
                        client, f"more than {self._largest_backlog} bytes that it does not acknowledge"
                    )
                else:
                    sent.append(client)
            if self._held and not self._release_due:
                self._release_due = True
                background().soon(lambda: background().loop.call_later(_HOLD, self._release))
        self.meter.add_each(message.sizes(), Direction.DOWN, sent)

    def _release(self) -> None:
        """Let go what has waited for long enough."""
        with self.lock:
            self._release_due = False
            self._flush()

    def _flush(self) -> None:
        """See `Waiting`."""
        for peer in self._held.values():
            if peer.stream is not None:
                peer.stream.wake()
        self._held.clear()

    def _answered(self) -> None:
        """See `Membership`. Of many clients more will answer in a moment: the thread then takes all of them.

        Otherwise it and the event loop would take turns, message by message.
        """
        if not self._holds:
            self.lock.notify_all()
        elif not self._notice_due:
            self._notice_due = True
            background().loop.call_later(_NOTICE, self._notice)

    def _notice(self) -> None:
        with self.lock:
            self._notice_due = False
            self.lock.notify_all()
