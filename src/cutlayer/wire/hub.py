"""The server's end of all connections: the transport that the training loop sees.

The loop runs in its own thread and calls `send` and `receive` here; `service.py` moves the bytes on an event
loop. Both meet at the peers, under one lock that nobody holds while working or waiting for the network.

What happens when a client is lost is the policy's business. Under `wait` the run waits: a client whose
connection broke comes back and continues its conversation; one whose process died has lost its state, so
all go back to the last checkpoint (`RollbackError`). Under `drop` the step goes on without it.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cutlayer.errors import (
    AbsentError,
    MessageError,
    NonFiniteError,
    RefusedError,
    RollbackError,
)
from cutlayer.wire import log
from cutlayer.wire.limits import Limits
from cutlayer.wire.messages import TYPES, Message, Report, pack, unpack
from cutlayer.wire.meter import Direction, Meter
from cutlayer.wire.peer import Peer, Stream
from cutlayer.wire.policy import Policy

# How often a waiting thread looks whether it was interrupted.
_GLANCE = 0.2
_REPORT = TYPES.index(Report)


class Hub:
    """All clients of a run, wherever they are."""

    def __init__(
        self,
        clients: int,
        policy: Policy | None = None,
        limits: Limits | None = None,
        check: Callable[[int, Any], None] = lambda client, ready: None,
    ) -> None:
        self.meter = Meter()
        self.policy = policy or Policy()
        self.limits = limits or Limits()
        self.patient = self.policy.straggler == "wait"
        self.lock = threading.Condition()
        self.peers = [Peer(number) for number in range(clients)]
        self.era = ""
        self.check = check
        """Raises RefusedError for a client whose data do not fit the run."""
        self.interrupted: Callable[[], bool] = lambda: False
        self.note: Callable[[str], None] = lambda text: None
        self.received: set[str] = set()
        """Kinds of messages that ever came in, so that a test can tell what this process has seen."""
        self._rollback: str | None = None
        self._welcome: dict[str, Any] = {}
        self._closed = False

    # For the thread that trains.

    def assemble(self, needed: int | None = None) -> list[Any]:
        """Wait until all clients, or `needed` of them, are ready; what they said of their data, or None."""
        told: list[int] = []
        with self.lock:
            while True:
                missing = [peer.number for peer in self.peers if not peer.waiting]
                if len(self.peers) - len(missing) >= (len(self.peers) if needed is None else needed):
                    return [peer.ready if peer.waiting else None for peer in self.peers]
                if missing != told:
                    told = missing
                    self.note(f"waiting for {_clients(missing)} of {len(self.peers)}")
                self._wait()

    def begin(self, step: int, era: str | None = None, **welcome: Any) -> None:
        """Make members of all who are ready: a new era begins after `step` steps."""
        with self.lock:
            self.era = era or secrets.token_hex(8)
            self._welcome = welcome
            for peer in self.peers:
                if peer.waiting:
                    peer.admit(era=self.era, step=step, **welcome)

    def newcomers(self) -> list[int]:
        """Clients that are ready while an era is going on."""
        with self.lock:
            return [peer.number for peer in self.peers if peer.waiting]

    @property
    def connected(self) -> int:
        """How many clients have a connection."""
        with self.lock:
            return sum(peer.stream is not None for peer in self.peers)

    @property
    def waiting(self) -> int:
        """How many messages have come that nobody has taken yet."""
        with self.lock:
            return sum(len(peer.inbox) for peer in self.peers)

    def meeting(self) -> str:
        """Where clients meet that average among themselves, as client 0 has said."""
        with self.lock:
            ready = self.peers[0].ready
            return "" if ready is None else str(ready.meeting)

    def test_samples(self, client: int) -> int:
        """How many test samples a client has said that it has."""
        with self.lock:
            ready = self.peers[client].ready
            return 0 if ready is None else int(ready.test_samples)

    def admit(self, client: int, step: int) -> None:
        """Make a newcomer a member after `step` steps. Its state is to be sent next."""
        with self.lock:
            if self.peers[client].waiting:
                self.peers[client].admit(era=self.era, step=step, **self._welcome)

    def dismiss(self, code: str, reason: str) -> None:
        """End the era: everybody is told to come back, or not to."""
        with self.lock:
            self.era = ""
            self._rollback = None
            for peer in self.peers:
                if peer.conversation is not None or code != "AGAIN":
                    peer.retire(code, reason)

    def members(self) -> tuple[int, ...]:
        """See `Transport.members`."""
        with self.lock:
            return tuple(peer.number for peer in self.peers if peer.conversation is not None)

    def announce(self, clients: Iterable[int], message: Message) -> None:
        """See `Transport.announce`."""
        data = pack(message)
        for client in clients:
            self._send(client, message, data)

    def send(self, client: int, message: Message) -> None:
        """See `Transport.send`."""
        self._send(client, message, pack(message))

    def receive(self, client: int) -> Message:
        """See `Transport.receive`."""
        peer = self.peers[client]
        began = time.monotonic()
        with self.lock:
            while not peer.inbox:
                if peer.conversation is None:
                    self._glance()
                    gone = f"client {client} is not there any more"
                    # As one who was ready, but died before the era began.
                    raise RollbackError(gone) if self.patient else AbsentError(gone)
                stream = peer.stream
                if stream is None:
                    began = time.monotonic()
                elif time.monotonic() - began > self.limits.silence:
                    # If it is honest it comes back and continues.
                    stream.end("AGAIN", f"no answer for {self.limits.silence:.0f} s")
                    peer.stream = None
                self._wait(peer)
            data = peer.inbox.popleft()
        message = unpack(data)
        self.received.add(type(message).__name__)
        self.meter.add(message.kind, Direction.UP, message.size, client)
        return message

    def ready(self, client: int) -> bool:
        """See `Transport.ready`."""
        # Under `drop` the weights of a mean are known only when it is clear who takes part in it.
        inbox = self.peers[client].inbox
        return self.patient and bool(inbox) and inbox[-1][0] == _REPORT

    def present(self, clients: Sequence[int], messages: int, at_least: int | None = None) -> tuple[int, ...]:
        """See `Transport.present`."""
        if self.patient:
            return tuple(clients)
        quorum = self.policy.quorum if at_least is None else at_least
        began = time.monotonic()
        with self.lock:
            while True:
                members = self.members()
                if len(members) < quorum:
                    raise RollbackError(f"only {len(members)} clients are left, and the quorum is {quorum}")
                there = tuple(c for c in clients if len(self.peers[c].inbox) >= messages)
                missing = [c for c in clients if c in members and c not in there]
                if not missing:
                    return there
                late = time.monotonic() - began > self.policy.deadline
                left = len(members) - len(missing)
                # Those who wait to be let in make up the quorum of the next step, if somebody who is left
                # can tell them the state.
                if late and (left >= quorum or (left and left + len(self.newcomers()) >= quorum)):
                    for client in missing:
                        self._drop(client)
                    return there
                self._wait()

    def fault(self, client: int, error: Exception) -> None:
        """See `Transport.fault`."""
        self.expel(client, str(error))
        if self.patient:
            raise RollbackError(f"client {client} was disconnected: {error}") from error

    def expel(self, client: int, reason: str) -> None:
        """Disconnect a client that broke the protocol, and say why."""
        with self.lock:
            self.note(f"client {client} broke the protocol and was disconnected: {reason}")
            log.event("client-expelled", "warning", client=client, reason=reason)
            peer = self.peers[client]
            if peer.conversation is not None and self.patient:
                self._rollback = f"client {client} was disconnected: {reason}"
            peer.spent.append(peer.incarnation)
            peer.incarnation = b""
            peer.retire("EXPELLED", reason)
            self.lock.notify_all()

    def close(self, code: str, reason: str) -> None:
        """No more clients."""
        self._closed = True
        self.dismiss(code, reason)

    # For the event loop, with the lock held.

    def greet(self, client: int, hello: Any, stream: Stream) -> bool:
        """A client's Hello: True if it goes on where its connection broke, False if it begins."""
        peer = self.peers[client]
        if self._closed:
            raise RefusedError("the run is over")
        known = hello.incarnation == peer.incarnation
        if (known and hello.attempt <= peer.attempt) or hello.incarnation in peer.spent:
            raise RefusedError("this Hello was used before; each connection needs a Hello of its own")
        if not known and peer.stream is not None:
            raise BlockingIOError(
                f"client {client} is connected from another process; stop that one, or give this one "
                "credentials of its own"
            )
        if known and peer.conversation is not None and hello.era == self.era:
            peer.conversation.confirm(hello.received)
            if peer.stream is not None:
                peer.stream.end("AGAIN", "replaced by a newer connection")
            stream.cursor, stream.conversation = hello.received, peer.conversation
            peer.stream, peer.attempt = stream, hello.attempt
            return True
        if peer.conversation is not None:
            self._forgot(peer)
        if peer.stream is not None:
            peer.stream.end("AGAIN", "replaced by a newer connection")
        if not known and peer.incarnation:
            peer.spent.append(peer.incarnation)
        peer.incarnation, peer.attempt, peer.stream, peer.ready = (
            hello.incarnation,
            hello.attempt,
            stream,
            None,
        )
        return False

    def prepared(self, client: int, ready: Any) -> None:
        """A client has its data."""
        self.check(client, ready)
        self.peers[client].ready = ready
        self.lock.notify_all()

    def arrived(self, client: int, data: memoryview) -> None:
        """A message that is not a repetition."""
        peer = self.peers[client]
        if len(peer.inbox) >= self.limits.waiting:
            raise MessageError(f"more than {self.limits.waiting} messages that nobody asked for")
        peer.inbox.append(data)
        self.lock.notify_all()

    def failed(self, client: int, failure: Any) -> None:
        """A client cannot go on."""
        self.peers[client].failure = failure
        self.lock.notify_all()

    def lost(self, client: int, stream: Stream) -> None:
        """A connection ended. Unless there is a newer one, the client is not connected."""
        peer = self.peers[client]
        if peer.stream is stream:
            peer.stream = None
            peer.ready = None
            self.lock.notify_all()

    # Below, the lock is held, too.

    def _send(self, client: int, message: Message, data: tuple[bytes, bytes]) -> None:
        with self.lock:
            peer = self.peers[client]
            if peer.conversation is None:
                return
            peer.conversation.send(*data)
            if peer.stream is not None:
                peer.stream.wake()
        self.meter.add(message.kind, Direction.DOWN, message.size, client)

    def _forgot(self, peer: Peer) -> None:
        """A member came back as another process, or from another era: what it held is lost."""
        peer.conversation = None
        peer.inbox.clear()
        peer.failure = None
        if self.patient:
            self._rollback = f"client {peer.number} came back without its state"
        self.lock.notify_all()

    def _drop(self, client: int) -> None:
        self.note(f"client {client} did not answer in {self.policy.deadline:g} s; going on without it")
        log.event("client-dropped", "warning", client=client)
        self.peers[client].retire("AGAIN", f"no answer in {self.policy.deadline:g} s")

    def _wait(self, peer: Peer | None = None) -> None:
        """Let others work for a moment, then look again."""
        self._glance()
        for one in self.peers:
            if one.failure is not None:
                reason, diverged = one.failure.reason, one.failure.diverged
                if diverged:
                    raise NonFiniteError(f"client {one.number}: {reason}")
                one.failure = None
                self.expel(one.number, reason)
        if self.interrupted() and (peer is None or peer.stream is None):
            # The step cannot end without this client; the last checkpoint is what counts.
            raise KeyboardInterrupt
        self.lock.wait(_GLANCE)

    def _glance(self) -> None:
        if self._rollback is not None:
            raise RollbackError(self._rollback)


def _clients(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
    return f"client{'s' * (len(numbers) > 1)} {shown}"
