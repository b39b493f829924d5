"""The server's end of all connections: the transport over gRPC.

Training runs in its own thread and calls `send` and `receive` here; `service.py` moves the bytes on an event
loop. Both meet at the peers of `membership.py`, under one lock that nobody holds while working or waiting for
the network.

What happens when a client is lost is the policy's business. Under `wait` the run waits: a client whose
connection broke comes back and continues its conversation; one whose process died has lost its state, so
all go back to the last checkpoint (`RollbackError`). Under `drop` the step goes on without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cutlayer.errors import AbsentError, NonFiniteError, RollbackError
from cutlayer.wire.grpc.event_loop import background
from cutlayer.wire.grpc.membership import Check, Membership, everybody_fits
from cutlayer.wire.grpc.peer import Peer
from cutlayer.wire.homes import Homes
from cutlayer.wire.limits import Limits
from cutlayer.wire.messages.base import Message, pack
from cutlayer.wire.messages.types import TYPES, Ask, BeginStep, Evaluate, Gradient, Report, Smashed, unpack
from cutlayer.wire.meter import Direction, Meter
from cutlayer.wire.policy import Policy

# How often a waiting thread looks whether it was interrupted.
_GLANCE = 0.2
# From so many clients on, it is told only every few seconds for whom a run waits.
_MANY, _TELL = 50, 2.0
# How long a message waits for the next one to the same client, in seconds.
_HOLD = 0.02
# How long a client's word that training diverged waits for that of the others, in seconds.
_GRACE = 5.0
_REPORT = TYPES.index(Report)
# Messages that a client has to answer.
_ASKING = (Ask, BeginStep, Evaluate, Gradient, Smashed)


class GrpcTransport(Membership):
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
        """See `Membership`. `interrupted` tells whether to give up waiting for a client that is not there."""
        super().__init__(clients, policy, limits, check=check, names=names, note=note, homes=homes)
        self.meter = Meter()
        self._interrupted = interrupted
        self._first_claim: float | None = None
        self._told_quorum = False
        """Whether the operator knows that the run waits for its quorum."""
        self._held: dict[int, Peer] = {}
        """Clients with a message that goes out with the next one."""
        self.received: set[str] = set()
        """Kinds of messages that ever came in, so that a test can tell what this process has seen."""

    def assemble(self, needed: int | None = None) -> list[Any]:
        """Wait until all clients, or `needed` of them, are ready; what they said of their data, or None.

        One of several ranks waits for its own.
        """
        told: list[int] = []
        when = -_TELL
        own = self.homes.own
        everybody = len(own) if needed is None else needed
        with self.lock:
            while True:
                missing = [client for client in own if not self.peers[client].waiting]
                there = len(own) - len(missing)
                if there >= everybody:
                    return [peer.ready if peer.waiting else None for peer in self.peers]
                # Each one that comes, unless hundreds come at once.
                if missing != told and (len(missing) < _MANY or time.monotonic() - when > _TELL):
                    told, when = missing, time.monotonic()
                    where = " of this rank" if self.homes.world > 1 else ""
                    self.note(
                        f"{there} clients of at least {everybody} are there"
                        if self.policy.elastic
                        else f"waiting for {self._list(missing)} of {len(own)}{where}"
                    )
                self._wait()

    def announce(self, clients: Iterable[int], message: Message) -> None:
        """See `Transport.announce`."""
        self._send(clients, message)

    def tell(self, clients: Iterable[int], message: Message) -> None:
        """See `Transport.tell`. It waits a moment for the next message to each client."""
        # With few clients, what they do meanwhile is worth more than a message less.
        hold = len(self.peers) >= _MANY
        self._send(clients, message, hold)
        if hold:
            background().soon(lambda: background().loop.call_later(_HOLD, self._release))

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

    def present(self, clients: Sequence[int], messages: int, at_least: int | None = None) -> tuple[int, ...]:
        """See `Transport.present`."""
        if self.patient:
            return tuple(clients)
        quorum = self.policy.quorum if at_least is None else at_least
        began = time.monotonic()
        with self.lock:
            waited = [self.peers[client] for client in clients]
            while True:
                members = len(self.members())
                if members < quorum:
                    raise RollbackError(f"only {members} clients are left, and the quorum is {quorum}")
                waited = [p for p in waited if p.conversation is not None and len(p.inbox) < messages]
                if not waited:
                    return tuple(c for c in clients if len(self.peers[c].inbox) >= messages)
                for peer in waited:
                    peer.activity.awaited()
                late = time.monotonic() - began > self.policy.deadline
                left = members - len(waited)
                # Those who wait to be let in make up the quorum of the next step, if somebody who is left
                # can tell them the state.
                if late and (left >= quorum or (left and left + len(self.newcomers()) >= quorum)):
                    for peer in waited:
                        self._drop(peer.number)
                    return tuple(c for c in clients if len(self.peers[c].inbox) >= messages)
                # One after another: a wake-up for each message of a thousand clients would be a thousand
                # looks at a thousand clients. Whoever is late is noticed all the same, at the next glance.
                until = time.monotonic() + _GLANCE
                while time.monotonic() < until and waited:
                    first = waited[0]
                    if first.conversation is None or len(first.inbox) >= messages:
                        waited.pop(0)
                        continue
                    self._wait(first, lone=False)

    def first_present(self, clients: Sequence[int], messages: int) -> tuple[int, ...]:
        """Those of the clients from whom so many messages are there; waits until there is one.

        There is no deadline for a client that is connected and slow. One that has no connection is a member
        no more after the deadline, if the transport is not patient. Nobody if others wait to be let in, or if
        none of the clients is a member.
        """
        with self.lock:
            while True:
                there = tuple(c for c in clients if len(self.peers[c].inbox) >= messages)
                if there:
                    return there
                awaited = [peer for c in clients if (peer := self.peers[c]).conversation is not None]
                if self.patient and not len(awaited) == len(clients) > 0:
                    self._glance()
                    raise RollbackError("a client is not there any more")
                members = len(self.members())
                if not self.patient and self.newcomers():
                    return ()
                if not self.patient and members < self.policy.quorum:
                    raise RollbackError(
                        f"only {members} clients are left, and the quorum is {self.policy.quorum}"
                    )
                if not awaited:
                    return ()
                for peer in awaited:
                    peer.activity.awaited()
                    self._end_silent(peer)
                self._wait(stuck=all(peer.stream is None for peer in awaited))

    def has_quorum(self) -> bool:
        """Whether as many members have a connection as the policy asks for. If not, waits a moment first."""
        with self.lock:
            there = len(self.reachable())
            if there >= self.policy.quorum:
                self._told_quorum = False
                return True
            if not self._told_quorum:
                self._told_quorum = True
                self.note(f"{there} clients are there; waiting for the quorum of {self.policy.quorum}")
            self._wait()
            return False

    def fault(self, client: int, error: Exception) -> None:
        """See `Transport.fault`."""
        self.expel(client, str(error))
        if self.patient:
            raise RollbackError(f"{self.label(client)} was disconnected: {error}") from error

    def _send(self, clients: Iterable[int], message: Message, hold: bool = False) -> None:
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
                if hold:
                    self._held[client] = peer
                elif peer.stream is not None:
                    self._held.pop(client, None)
                    peer.stream.wake()
                if conversation.kept_bytes > self._largest_backlog:
                    self.expel(
                        client, f"more than {self._largest_backlog} bytes that it does not acknowledge"
                    )
                else:
                    sent.append(client)
        self.meter.add_each(message.sizes(), Direction.DOWN, sent)

    def _release(self) -> None:
        """Let go what has waited for a next message."""
        with self.lock:
            for peer in self._held.values():
                if peer.stream is not None:
                    peer.stream.wake()
            self._held.clear()

    # Below, the lock is held.

    def _drop(self, client: int) -> None:
        self.note(f"{self.label(client)} did not answer in {self.policy.deadline:g} s; going on without it")
        self.log("client-dropped", client, "warning")
        self.peers[client].retire("AGAIN", f"no answer in {self.policy.deadline:g} s")

    def _end_silent(self, peer: Peer) -> None:
        """End the connection of a client that does not answer, or drop one that has no connection."""
        stream = peer.stream
        if stream is not None and peer.activity.silent > self.limits.silence:
            # If it is honest it comes back and continues.
            stream.end("AGAIN", f"no answer for {self.limits.silence:.0f} s")
            peer.stream = None
            peer.activity.lost()
        elif stream is None and not self.patient and peer.activity.absent > self.policy.deadline:
            self._drop(peer.number)

    def _wait(self, peer: Peer | None = None, lone: bool = True, stuck: bool | None = None) -> None:
        """Let others work for a moment, then look again. `lone`: nothing can go on without this client.

        `stuck`: nobody who is waited for is connected; by default, whether `peer` is not.
        """
        self._glance()
        claims = []
        for one in [peer for peer in self.peers if peer.failure is not None] if self._failures else ():
            if one.failure.diverged:
                claims.append(one)
            else:
                reason, one.failure = one.failure.reason, None
                self.expel(one.number, reason)
        if claims:
            self._judge_divergence(claims)
        else:
            self._first_claim = None
            self._failures = False
        stuck = (peer is None or not lone or peer.stream is None) if stuck is None else stuck
        if self._interrupted() and stuck:
            # The step cannot end without this client; the last checkpoint is what counts.
            raise KeyboardInterrupt
        self._awaited = peer
        self.lock.wait(_GLANCE)
        self._awaited = None

    def _judge_divergence(self, claims: Sequence[Peer]) -> None:
        """Believe clients that training diverged if most of them say so; a few who say so are at fault.

        Clients that hold the same weights find out in the same step, so the others get a moment to say so.
        """
        members = [peer for peer in self.peers if peer.conversation is not None]
        claims = [peer for peer in claims if peer in members]
        if not claims:
            self._first_claim = None
            return
        if 2 * len(claims) > len(members):
            told = "; ".join(f"{self.label(peer.number)}: {peer.failure.reason}" for peer in claims[:3])
            raise NonFiniteError(told)
        now = time.monotonic()
        self._first_claim = self._first_claim or now
        answered = all(peer.inbox for peer in members if peer not in claims)
        if answered or now - self._first_claim > _GRACE:
            for peer in claims:
                reason, peer.failure = peer.failure.reason, None
                self.expel(peer.number, f"it says that training diverged, and most others do not: {reason}")

    def _glance(self) -> None:
        if self._rollback is not None:
            raise RollbackError(self._rollback)

    def _list(self, numbers: Sequence[int]) -> str:
        if self.names:
            shown = ", ".join(map(self.label, numbers[:8]))
            return shown + (", ..." if len(numbers) > 8 else "")
        shown = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
        return f"client{'s' * (len(numbers) > 1)} {shown}"
