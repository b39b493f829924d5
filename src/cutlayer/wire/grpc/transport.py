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
from cutlayer.wire.grpc.membership import Check, Membership, everybody_fits
from cutlayer.wire.grpc.peer import Peer
from cutlayer.wire.homes import Homes
from cutlayer.wire.limits import Limits
from cutlayer.wire.messages.parse import unpack
from cutlayer.wire.messages.types import (
    TYPES,
    Ask,
    BeginStep,
    Evaluate,
    Gradient,
    Message,
    Report,
    Smashed,
    pack,
)
from cutlayer.wire.meter import Direction, Meter
from cutlayer.wire.policy import Policy

# How often a waiting thread looks whether it was interrupted.
_GLANCE = 0.2
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
        self.received: set[str] = set()
        """Kinds of messages that ever came in, so that a test can tell what this process has seen."""

    def assemble(self, needed: int | None = None) -> list[Any]:
        """Wait until all clients, or `needed` of them, are ready; what they said of their data, or None.

        One of several ranks waits for its own.
        """
        told: list[int] = []
        own = self.homes.own
        with self.lock:
            while True:
                missing = [client for client in own if not self.peers[client].waiting]
                if len(own) - len(missing) >= (len(own) if needed is None else needed):
                    return [peer.ready if peer.waiting else None for peer in self.peers]
                if missing != told:
                    told = missing
                    where = " of this rank" if self.homes.world > 1 else ""
                    self.note(f"waiting for {self._list(missing)} of {len(own)}{where}")
                self._wait()

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
            data = peer.take_message()
        message = unpack(data)
        self.received.add(type(message).__name__)
        self.meter.add_all(message.sizes(), Direction.UP, client)
        return message

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
            while True:
                members = self.members()
                if len(members) < quorum:
                    raise RollbackError(f"only {len(members)} clients are left, and the quorum is {quorum}")
                there = tuple(c for c in clients if len(self.peers[c].inbox) >= messages)
                missing = [c for c in clients if c in members and c not in there]
                if not missing:
                    return there
                for client in missing:
                    self.peers[client].activity.awaited()
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
            raise RollbackError(f"{self.label(client)} was disconnected: {error}") from error

    def _send(self, client: int, message: Message, data: tuple[bytes, bytes]) -> None:
        with self.lock:
            peer = self.peers[client]
            if peer.conversation is None:
                return
            peer.conversation.send(*data)
            peer.activity.sent(message.size, isinstance(message, _ASKING))
            if peer.stream is not None:
                peer.stream.wake()
            if peer.conversation.kept_bytes > self._largest_backlog:
                self.expel(client, f"more than {self._largest_backlog} bytes that it does not acknowledge")
                return
        self.meter.add_all(message.sizes(), Direction.DOWN, client)

    # Below, the lock is held.

    def _drop(self, client: int) -> None:
        self.note(f"{self.label(client)} did not answer in {self.policy.deadline:g} s; going on without it")
        self.log("client-dropped", client, "warning")
        self.peers[client].retire("AGAIN", f"no answer in {self.policy.deadline:g} s")

    def _wait(self, peer: Peer | None = None) -> None:
        """Let others work for a moment, then look again."""
        self._glance()
        claims = []
        for one in [peer for peer in self.peers if peer.failure is not None]:
            if one.failure.diverged:
                claims.append(one)
            else:
                reason, one.failure = one.failure.reason, None
                self.expel(one.number, reason)
        if claims:
            self._judge_divergence(claims)
        else:
            self._first_claim = None
        if self._interrupted() and (peer is None or peer.stream is None):
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
