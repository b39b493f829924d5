"""Whose answer comes next: on a network whoever answers, in one process whom a virtual clock says."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from cutlayer.protocol.plan import Step
from cutlayer.server.asynchronous.kept_messages import KeptMessages
from cutlayer.server.simulated_work import SimulatedWork
from cutlayer.wire.link.model import Link
from cutlayer.wire.meter import Direction

#: A client always answers with two messages: Smashed and Labels, or SyncUp and Report.
ANSWER = 2


class Arrivals(Protocol):
    """The order in which clients' answers are taken."""

    @property
    def immediate(self) -> bool:
        """Whether clients have answered as soon as they were asked, so that only their order matters."""

    @property
    def seconds(self) -> float | None:
        """The time of a virtual clock; None where real time passes."""

    def asked(self, kept: KeptMessages, batch: Step, nbytes: int, passes: int) -> None:
        """A client was sent so many bytes, and makes so many passes over its batch to answer."""

    def asked_again(self, kept: KeptMessages, client: int) -> None:
        """A client was sent again what it was sent before."""

    def next(self, clients: Sequence[int]) -> tuple[int, ...]:
        """Those of the clients whose answers are there at the next instant. Waits for the first of them."""

    def taken(self, client: int) -> None:
        """The answer of a client was taken."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs, as plain JSON."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` gave."""


class Waiting(Protocol):
    """A transport on which one can wait for the first of many clients."""

    def first_present(self, clients: Sequence[int], messages: int) -> tuple[int, ...]:
        """Those of the clients from whom so many messages are there; waits until there is one."""


class NetworkArrivals:
    """Answers are taken as they come."""

    immediate = False
    seconds: float | None = None

    def __init__(self, transport: Waiting) -> None:
        self._transport = transport
        self._kept: KeptMessages | None = None

    def asked(self, kept: KeptMessages, batch: Step, nbytes: int, passes: int) -> None:
        """See `Arrivals.asked`."""
        self._kept = kept

    def asked_again(self, kept: KeptMessages, client: int) -> None:
        """See `Arrivals.asked_again`."""
        self._kept = kept

    def next(self, clients: Sequence[int]) -> tuple[int, ...]:
        """See `Arrivals.next`."""
        kept = self._kept
        held = tuple(c for c in clients if kept is not None and kept.holds(c))
        return held or self._transport.first_present(clients, ANSWER)

    def taken(self, client: int) -> None:
        """See `Arrivals.taken`."""

    def state(self) -> dict[str, Any]:
        """See `Arrivals.state`. Nobody can say who would have come next."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Arrivals.restore`."""


class VirtualArrivals:
    """Answers are taken in the order of a virtual clock, which passes over compute and transfer times."""

    immediate = True

    def __init__(self, work: SimulatedWork, links: Sequence[Link] = ()) -> None:
        self._work = work
        self._links = tuple(links)
        self._now = 0.0
        self._due: dict[int, float] = {}

    @property
    def seconds(self) -> float | None:
        """See `Arrivals.seconds`."""
        return self._now

    def asked(self, kept: KeptMessages, batch: Step, nbytes: int, passes: int) -> None:
        """See `Arrivals.asked`. The client has answered already; only now is known how long it takes."""
        (client,), (samples,) = batch.clients, batch.samples
        answer = kept.hold(client, ANSWER)
        seconds = self._work.seconds(client, batch.number, samples, passes)
        if self._links:
            link = self._links[client % len(self._links)]
            seconds += link.seconds(Direction.DOWN, nbytes) + link.seconds(Direction.UP, answer)
        self._due[client] = self._now + seconds

    def asked_again(self, kept: KeptMessages, client: int) -> None:
        """See `Arrivals.asked_again`. It comes when it would have come; if that is not known, at once."""
        self._due.setdefault(client, self._now)

    def next(self, clients: Sequence[int]) -> tuple[int, ...]:
        """See `Arrivals.next`. Of those who come at the same instant, the first in client order is first."""
        self._now = max(self._now, min(self._due.values()))
        return tuple(sorted(client for client, due in self._due.items() if due <= self._now))

    def taken(self, client: int) -> None:
        """See `Arrivals.taken`."""
        del self._due[client]

    def state(self) -> dict[str, Any]:
        """See `Arrivals.state`."""
        return {"now": self._now, "due": {str(client): due for client, due in self._due.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Arrivals.restore`. A checkpoint of a run over the network does not say who comes next."""
        self._now = float(state.get("now", 0.0))
        self._due = {int(client): float(due) for client, due in state.get("due", {}).items()}
