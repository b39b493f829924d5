"""Who the clients of a run are, who of them is connected, and who takes part.

An era begins with all who are ready and ends when everybody has to come back. Within it a client whose
connection broke goes on with its conversation; one that comes back as another process has lost its state.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cutlayer.errors import MessageError, NotNowError, RefusedError
from cutlayer.wire import log
from cutlayer.wire.grpc.peer import Peer, Stream
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


class Membership:
    """All clients of a run, wherever they are."""

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

        `names` are those of the clients in the order of their numbers, where credentials tell them. `homes`
        says which clients are expected here, where the server has several ranks.
        """
        self.homes = homes or Homes(clients, 0, 1)
        self.clients = clients
        self.policy = policy or Policy()
        self.limits = limits or Limits()
        self.names = tuple(names)
        self.patient = self.policy.straggler == "wait"
        self.lock = threading.Condition()
        self.peers = [Peer(number) for number in range(clients)]
        self.era = ""
        self.note = note
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
        self._welcome: dict[str, Any] = {}
        self._largest_backlog = _BACKLOG * self.limits.message
        self._closed = False

    def label(self, client: int) -> str:
        """See `Transport.label`."""
        named = client < len(self.names)
        return f"client {client} ({self.names[client]})" if named else f"client {client}"

    # For the thread that trains.

    def place_of(self, name: str) -> int:
        """The number of the client with this name. In an elastic run a new one gets the next place."""
        if name in self.names:
            return self.names.index(name)
        if not self.policy.elastic:
            raise RefusedError(f"{name!r} is not among the clients of this run")
        if len(self.names) >= self.clients:
            raise RefusedError(
                f"all {self.clients} places of this run are taken; start it with more --clients"
            )
        self.names = (*self.names, name)
        return len(self.names) - 1

    def let_go(self) -> None:
        """Whoever has no connection now is no member any more, and is a newcomer when it comes back."""
        with self.lock:
            for peer in self.peers:
                if peer.conversation is not None and peer.stream is None:
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

    def members(self) -> tuple[int, ...]:
        """See `Transport.members`."""
        with self.lock:
            return tuple(peer.number for peer in self.peers if peer.conversation is not None)

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

    def roster(self) -> list[dict[str, Any]]:
        """Every client as it is now, as plain JSON: for whoever watches the run."""
        with self.lock:
            return [
                peer.to_json() | {"name": self.names[peer.number] if peer.number < len(self.names) else ""}
                for peer in self.peers
            ]

    def rendezvous(self) -> str:
        """Where clients meet that average among themselves, as client 0 has said."""
        with self.lock:
            ready = self.peers[0].ready
            return "" if ready is None else str(ready.meeting)

    def test_samples(self, client: int) -> int:
        """How many test samples a client has said that it has."""
        ready = self.ready_of(client)
        return 0 if ready is None else int(ready.test_samples)

    def ready_of(self, client: int) -> Any:
        """What a client that is there has said of its data; None if it has said nothing."""
        with self.lock:
            return self.peers[client].ready

    def reachable(self) -> tuple[int, ...]:
        """See `Transport.reachable`."""
        with self.lock:
            return tuple(p.number for p in self.peers if p.conversation is not None and p.stream is not None)

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
            if peer.conversation is not None and self.patient:
                self._rollback = f"{self.label(client)} was disconnected: {reason}"
            peer.spend()
            peer.incarnation = b""
            peer.retire("EXPELLED", reason)
            self.lock.notify_all()

    def log(self, event: str, client: int | None, level: str = "info", **fields: Any) -> None:
        """Write an event of a client to the log, with its name where that is known."""
        if client is not None and client < len(self.names):
            fields["name"] = self.names[client]
        log.event(event, level, client=client, **fields)

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
        if self.patient:
            self._rollback = f"{self.label(peer.number)} came back without its state"
        self.lock.notify_all()
