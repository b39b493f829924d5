"""Who of a run's clients takes part: they are greeted, checked, made members, and told to leave.

An era begins with all who are ready and ends when everybody has to come back. Within it a client whose
connection broke goes on with its conversation; one that comes back as another process has lost its state.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from cutlayer.errors import MessageError, NotNowError, RefusedError
from cutlayer.wire.grpc.peer import Peer, Stream
from cutlayer.wire.grpc.roster import Roster
from cutlayer.wire.homes import Homes
from cutlayer.wire.limits import Limits
from cutlayer.wire.penalty import Penalties
from cutlayer.wire.policy import Policy

# An honest client has two messages on their way at most, and so has the server; small ones come on top.
_BACKLOG, _SLACK = 3, 1 << 20
#: Whether a client's data fit the run: its number, what it said, and what others said that are there. Raises
#: RefusedError, or NotNowError if they may fit later; gives the others that have to go then, and why.
Check = Callable[[int, Any, Mapping[int, Any]], Mapping[int, str]]


def everybody_fits(client: int, ready: Any, others: Mapping[int, Any]) -> Mapping[int, str]:
    """Nobody's data are looked at."""
    return {}


class Membership(Roster):
    """The clients of a run, and which of them are members of the present era."""

    def __init__(
        self,
        clients: int,
        policy: Policy | None = None,
        limits: Limits | None = None,
        *,
        check: Check = everybody_fits,
        names: Sequence[str] = (),
        note: Callable[[str], None] = lambda text: None,
        penalties: Penalties | None = None,
        homes: Homes | None = None,
    ) -> None:
        """`check` tells whether a client's data fit the run, `penalties` who has to stay away.

        See `Roster` for the rest.
        """
        super().__init__(clients, policy, limits, names=names, note=note, homes=homes)
        self.era = ""
        self._check = check
        self._penalties = penalties or Penalties()
        self._refusals: dict[int, str] = {}
        """Why clients were refused last, as the operator was told."""
        self._awaited: Peer | None = None
        """Whose message the training thread waits for, if it waits for one client's alone."""
        self._rollback: str | None = None
        """Why all have to go back to the last checkpoint, if they do."""
        self._failures = False
        """Whether somebody has said that it cannot go on, and nobody has looked since."""
        self._needed: frozenset[int] | None = None
        """Whose state the run cannot go on without; None for that of everybody."""
        self._welcome: dict[str, Any] = {}
        self._largest_backlog = _BACKLOG * self.limits.message
        self._closed = False

    # For the thread that trains.

    def need(self, clients: Collection[int]) -> None:
        """From now on only these hold what the run cannot go on without. A new era needs everybody.

        Under `wait`, whoever else is lost is a newcomer when it comes back, and nobody goes back with it.
        """
        with self.lock:
            self._needed = frozenset(clients)

    def let_go(self) -> None:
        """Whoever has no connection now is no member any more, and is a newcomer when it comes back.

        Under `wait` those are kept who hold what the run needs.
        """
        with self.lock:
            for peer in self.peers:
                if peer.conversation is not None and peer.stream is None and not self._holds_state(peer):
                    self.log("client-gone", peer.number)
                    peer.retire("AGAIN", "it left")

    def begin(
        self, step: int, era: str | None = None, *, largest_message: int | None = None, **welcome: Any
    ) -> None:
        """Make members of all who are ready: a new era begins after `step` steps.

        `largest_message` is the size of the largest message that an honest client sends in this run. It
        bounds what waits for the server, and what it keeps for a client, to a few of them.
        """
        with self.lock:
            if largest_message is not None:
                self._largest_backlog = _BACKLOG * largest_message + _SLACK
            self.era = era or secrets.token_hex(8)
            self._needed = None
            self._welcome = welcome
            for peer in self.peers:
                if peer.waiting:
                    peer.admit(era=self.era, step=step, **welcome)

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

    def close(self, code: str, reason: str) -> None:
        """No more clients."""
        self._closed = True
        self.dismiss(code, reason)

    def recheck(self) -> None:
        """Check all who are ready once more: what fits has changed since they came."""
        with self.lock:
            for peer in self.peers:
                if peer.waiting:
                    try:
                        self._check(peer.number, peer.ready, {})
                    except RefusedError as error:
                        self._turn_away(peer, str(error))

    def expel(self, client: int, reason: str) -> None:
        """Disconnect a client that broke the protocol, and say why."""
        with self.lock:
            wait = self._penalties.add(client)
            offences = self._penalties.offences(client)
            told = f"{self.label(client)} broke the protocol and was disconnected: {reason}"
            if wait:
                told += f" (offence {offences}; it has to stay away for {wait:g} s"
                stuck = "; the run cannot go on without it: mend it, or give its place to another client"
                told += f"{stuck if self.patient else ''})"
            self.note(told)
            self.log("client-expelled", client, "warning", reason=reason, offences=offences, seconds=wait)
            peer = self.peers[client]
            if peer.conversation is not None and self._holds_state(peer):
                self._rollback = f"{self.label(client)} was disconnected: {reason}"
            peer.spend()
            peer.incarnation = b""
            peer.retire("EXPELLED", reason)
            self.lock.notify_all()

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
            raise NotNowError(
                f"{self.label(client)} is connected from another process; stop that one, or give this one "
                "credentials of its own"
            )
        wait = self._penalties.left(client)
        if wait and not known:
            raise NotNowError(
                f"{self.label(client)} broke the protocol {self._penalties.offences(client)} times; it may "
                f"come again in {math.ceil(wait)} s"
            )
        if known and peer.conversation is not None and hello.era == self.era:
            peer.conversation.confirm(hello.received)
            peer.take(stream, hello)
            stream.cursor, stream.conversation = hello.received, peer.conversation
            return True
        if peer.conversation is not None:
            self._forgot(peer)
        if not known and peer.incarnation:
            peer.spend()
        peer.take(stream, hello)
        peer.ready = None
        return False

    def prepared(self, client: int, ready: Any) -> None:
        """A client has its data."""
        others = {p.number: p.ready for p in self.peers if p.ready is not None and p.number != client}
        try:
            leaving = self._check(client, ready, others)
        except RefusedError as error:
            if self._refusals.get(client) != str(error):
                self._refusals[client] = str(error)
                self.note(f"{self.label(client)} was refused: {error}")
            raise
        self._refusals.pop(client, None)
        for number, reason in leaving.items():
            self._turn_away(self.peers[number], reason)
        self.peers[client].ready = ready
        self.lock.notify_all()

    def room(self, client: int) -> int:
        """The most bytes that a message of this client may have now."""
        return min(self.limits.message, self._largest_backlog - self.peers[client].inbox_bytes)

    def arrived(self, client: int, data: memoryview) -> None:
        """A message that is not a repetition."""
        peer = self.peers[client]
        if not data:
            raise MessageError("an empty message")
        if len(peer.inbox) >= self.limits.waiting:
            raise MessageError(f"more than {self.limits.waiting} messages that nobody asked for")
        peer.put_message(data)
        peer.activity.received(len(data))
        # Waking a thread that waits for another client costs more than the message itself.
        if self._awaited is None or self._awaited is peer:
            self._answered()

    def _answered(self) -> None:
        """The message has come for which the training thread waits."""
        self.lock.notify_all()

    def failed(self, client: int, failure: Any) -> None:
        """A client cannot go on."""
        self.peers[client].failure = failure
        self._failures = True
        self.lock.notify_all()

    def lost(self, client: int, stream: Stream) -> None:
        """A connection ended. Unless there is a newer one, the client is not connected."""
        peer = self.peers[client]
        if peer.stream is stream:
            peer.stream = None
            peer.ready = None
            peer.activity.lost()
            self.lock.notify_all()

    def _turn_away(self, peer: Peer, reason: str) -> None:
        """A client that was ready does not fit any more."""
        self.note(f"{self.label(peer.number)} was refused: {reason}")
        self.log("refused", peer.number, "warning", kind="data", error=reason)
        peer.retire("REFUSED", reason)
        self.lock.notify_all()

    def _forgot(self, peer: Peer) -> None:
        """A member came back as another process, or from another era: what it held is lost."""
        peer.conversation = None
        peer.forget_messages()
        peer.failure = None
        if self._holds_state(peer):
            self._rollback = f"{self.label(peer.number)} came back without its state"
        self.lock.notify_all()

    def _holds_state(self, peer: Peer) -> bool:
        """Whether all have to go back to the last checkpoint if this client is lost."""
        return self.patient and (self._needed is None or peer.number in self._needed)
