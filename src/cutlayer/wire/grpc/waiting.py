"""How the thread that trains waits for clients: for all, for those of a step, for the first, for a quorum.

What happens when a client is lost is the policy's business. Under `wait` the run waits: a client whose
connection broke comes back and continues its conversation; one whose process died has lost its state, so
all go back to the last checkpoint (`RollbackError`). Under `drop` the step goes on without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from cutlayer.errors import RollbackError
from cutlayer.wire.grpc.divergence import Claims
from cutlayer.wire.grpc.membership import Check, Membership, everybody_fits
from cutlayer.wire.grpc.peer import Peer
from cutlayer.wire.homes import Homes
from cutlayer.wire.limits import Limits
from cutlayer.wire.policy import Policy

# How often a waiting thread looks whether it was interrupted.
_GLANCE = 0.2
#: From so many clients on, it is told only every few seconds for whom a run waits.
MANY = 50
_TELL = 2.0


class Waiting(Membership):
    """The clients of a run, for a thread that waits for them."""

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
        self._interrupted = interrupted
        self._claims = Claims(self.label)
        self._told_quorum = False
        """Whether the operator knows that the run waits for its quorum."""
        self._told_missing: list[int] = []
        """For whom the run waits, as the operator was told."""

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
                if missing != told and (len(missing) < MANY or time.monotonic() - when > _TELL):
                    told, when = missing, time.monotonic()
                    where = " of this rank" if self.homes.world > 1 else ""
                    self.note(
                        f"{there} clients of at least {everybody} are there"
                        if self.policy.elastic
                        else f"waiting for {self._list(missing)} of {len(own)}{where}"
                    )
                self._wait()

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

    def all_there(self, clients: Sequence[int]) -> bool:
        """Whether all these are members and have a connection. If not, waits a moment first."""
        with self.lock:
            there = set(self.reachable())
            missing = [client for client in clients if client not in there]
            if missing and missing != self._told_missing:
                self.note(f"waiting for {self._list(missing)}")
            self._told_missing = missing
            if missing:
                self._wait()
            return not missing

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
        if self._failures:
            self._hear_failures()
        stuck = (peer is None or not lone or peer.stream is None) if stuck is None else stuck
        if self._interrupted() and stuck:
            # The step cannot end without this client; the last checkpoint is what counts.
            raise KeyboardInterrupt
        self._flush()
        self._awaited = peer
        self.lock.wait(_GLANCE)
        self._awaited = None

    def _flush(self) -> None:
        """Send what was held back, since this thread waits for the answers."""

    def _hear_failures(self) -> None:
        """Disconnect who cannot go on. That training diverged is believed if most say so."""
        claims = []
        for one in [peer for peer in self.peers if peer.failure is not None]:
            if one.failure.diverged:
                claims.append(one)
            else:
                reason, one.failure = one.failure.reason, None
                self.expel(one.number, reason)
        members = [peer for peer in self.peers if peer.conversation is not None]
        for peer in self._claims.at_fault(claims, members):
            reason, peer.failure = peer.failure.reason, None
            self.expel(peer.number, f"it says that training diverged, and most others do not: {reason}")
        self._failures = bool(claims)

    def _glance(self) -> None:
        if self._rollback is not None:
            raise RollbackError(self._rollback)

    def _list(self, numbers: Sequence[int]) -> str:
        if self.names:
            shown = ", ".join(map(self.label, numbers[:8]))
            return shown + (", ..." if len(numbers) > 8 else "")
        shown = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
        return f"client{'s' * (len(numbers) > 1)} {shown}"
