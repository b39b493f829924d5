"""The clients of a run: who they are, who of them is connected, and what they said of their data."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from cutlayer.errors import RefusedError
from cutlayer.wire import log
from cutlayer.wire.grpc.peer import Peer
from cutlayer.wire.homes import Homes
from cutlayer.wire.limits import Limits
from cutlayer.wire.policy import Policy


class Roster:
    """All clients of a run, wherever they are. `lock` is held by whoever reads or changes a peer."""

    def __init__(
        self,
        clients: int,
        policy: Policy | None = None,
        limits: Limits | None = None,
        *,
        names: Sequence[str] = (),
        note: Callable[[str], None] = lambda text: None,
        homes: Homes | None = None,
    ) -> None:
        """`names` are those of the clients in the order of their numbers, where credentials tell them.

        `homes` says which clients are expected here, where the server has several ranks. `note` tells the
        operator.
        """
        self.homes = homes or Homes(clients, 0, 1)
        self.clients = clients
        self.policy = policy or Policy()
        self.limits = limits or Limits()
        self.names = tuple(names)
        self.patient = self.policy.straggler == "wait"
        self.lock = threading.Condition()
        self.peers = [Peer(number) for number in range(clients)]
        self.note = note

    def label(self, client: int) -> str:
        """See `Transport.label`."""
        named = client < len(self.names)
        return f"client {client} ({self.names[client]})" if named else f"client {client}"

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

    def place_for(self, hello: Any, name: str | None) -> int:
        """Which client of the run this is: its credential says so, if there are any."""
        peers, homes = self.peers, self.homes
        if name is not None:
            place = self.place_of(name)
            homes.check(place)
            return place
        if hello.HasField("claims"):
            if hello.claims >= len(peers):
                raise RefusedError(f"there is no client {hello.claims}; the run has {len(peers)}, from 0")
            homes.check(int(hello.claims))
            return int(hello.claims)
        peers = [peers[client] for client in homes.own]
        known = [peer.number for peer in peers if peer.incarnation == hello.incarnation]
        free = [peer.number for peer in peers if peer.stream is None and peer.conversation is None]
        lost = [peer.number for peer in peers if peer.stream is None]
        found = (known or free or lost)[:1]
        if not found and homes.world > 1:
            raise homes.next()
        if not found:
            raise RefusedError(f"all {len(peers)} clients of the run are connected")
        return found[0]

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

    def log(self, event: str, client: int | None, level: str = "info", **fields: Any) -> None:
        """Write an event of a client to the log, with its name where that is known."""
        if client is not None and client < len(self.names):
            fields["name"] = self.names[client]
        log.event(event, level, client=client, **fields)
