"""Where the time of a step goes, and what it would be on the given link."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from time import perf_counter
from types import TracebackType
from typing import Any

from cutlayer.errors import LinkError
from cutlayer.server.simulated_work import BACKWARD, FORWARD, SimulatedWork
from cutlayer.wire.link.model import Link
from cutlayer.wire.messages.types import Report
from cutlayer.wire.meter import Direction

#: The stages of a step: five at the clients, summed over them, then those at the server.
STAGES = (
    "client_data",
    "client_forward",
    "client_encode",
    "client_decode",
    "client_backward",
    "server_decode",
    "server",
    "server_encode",
    "sync",
)


class VirtualClock:
    """The time that a run would have taken on a network: compute as measured, transfer as shaped.

    One process computes its clients one after another, but on a network they work at the same time.
    So a stage that all clients go through together takes as long as the slowest of them, and a stage
    that they go through in turn takes the sum. One step of parallel mode is

        >>> clock = VirtualClock()
        >>> _ = clock.parallel(forward[c] + link.seconds(Direction.UP, sent[c]) for c in clients)
        >>> clock.add(server)  # waits for all of them
        >>> _ = clock.parallel(link.seconds(Direction.DOWN, got[c]) + backward[c] for c in clients)

    Each client has a link of its own; the server's is taken to be wide enough for all of them.
    """

    def __init__(self) -> None:
        self._seconds = 0.0

    @property
    def seconds(self) -> float:
        """The time so far."""
        return self._seconds

    def add(self, seconds: float) -> None:
        """Everybody waits for one thing: the server's work, or a client whose turn it is."""
        if not seconds >= 0:
            raise LinkError(f"a stage cannot take {seconds} seconds")
        self._seconds += seconds

    def parallel(self, seconds: Iterable[float]) -> float:
        """Clients work and send at the same time: the slowest counts, and is returned."""
        slowest = max(seconds, default=0.0)
        self.add(slowest)
        return slowest

    def state(self) -> dict[str, Any]:
        """The time as plain JSON, for a checkpoint."""
        return {"seconds": self._seconds}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._seconds = float(state["seconds"])


class Timeline:
    """Seconds by stage as measured, and the virtual clock of a run with a link.

    A step is a row of phases. In each, clients work at the same time, each on its own link, then the server
    waits for the slowest and works: smashed data up and server, gradients down and what is shared up, and
    one phase more in a U-shape. What the server sends belongs to the phase that follows its work.
    """

    def __init__(self, *links: Link, work: SimulatedWork | None = None) -> None:
        """`work` says how long clients compute, instead of what is measured. The server's time is then 0."""
        self._work = work
        self.links = links
        """Clients get them one after another, again and again; without any, only work counts."""
        self.clock = VirtualClock()
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self._clients: list[dict[int, float]] = []
        self._server: list[float] = []
        self._phase = 0

    @property
    def simulates(self) -> bool:
        """Whether the clock tells the time of a simulated network or of simulated clients."""
        return bool(self.links) or self._work is not None

    def begin(self, phases: int) -> None:
        """Begin a step."""
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self._clients = [{} for _ in range(phases)]
        self._server = [0.0] * phases
        self._phase = 0

    def advance(self) -> None:
        """The server's work so far is done, and all clients go on from it."""
        self._phase += 1

    def server(self, stage: str) -> AbstractContextManager[None]:
        """Work at the server."""
        return _Work(self, stage)

    def worked(self, stage: str, spent: float) -> None:
        """The server has worked for so many seconds."""
        self.seconds[stage] += spent
        if self._work is None:
            self._server[self._phase] += spent

    def up(self, client: int, nbytes: int) -> None:
        """Messages that go up together."""
        self._transfer(client, Direction.UP, nbytes, self._phase)

    def down(self, client: int, nbytes: int) -> None:
        """What the server sends after its work."""
        self._transfer(client, Direction.DOWN, nbytes, self._phase + 1)

    def begun(self, client: int, nbytes: int) -> None:
        """What a client gets to begin its step, and what came down just before: one latency for both."""
        self._transfer(client, Direction.DOWN, nbytes, 0)

    def finished(self, client: int, report: Report, nbytes: int) -> None:
        """What a client reports of its step, and the bytes that it sent at its end."""
        before = (report.data, report.forward, report.encode)
        behind = (report.decode, report.backward)
        for stage, spent in zip(STAGES, (*before, *behind), strict=False):
            self.seconds[stage] += spent
        if self._work is None:
            self._add(client, sum(before), 0)
            self._add(client, sum(behind), -1)
        else:
            place = (client, report.number, report.samples)
            self._add(client, self._work.seconds(*place, FORWARD), 0)
            self._add(client, self._work.seconds(*place, BACKWARD), -1)
        self._transfer(client, Direction.UP, nbytes, -1)

    def end(self) -> None:
        """Put the step on the clock."""
        for clients, server in zip(self._clients, self._server, strict=True):
            self.clock.parallel(clients.values())
            self.clock.add(server)

    def _transfer(self, client: int, direction: Direction, nbytes: int, phase: int) -> None:
        if self.links:
            link = self.links[client % len(self.links)]
            self._add(client, link.seconds(direction, nbytes), phase)

    def _add(self, client: int, seconds: float, phase: int) -> None:
        line = self._clients[phase]
        line[client] = line.get(client, 0.0) + seconds


class _Work(AbstractContextManager[None]):
    """A stretch of the server's work. A class, because a generator takes twice as long."""

    __slots__ = ("_began", "_stage", "_timeline")

    def __init__(self, timeline: Timeline, stage: str) -> None:
        self._timeline, self._stage = timeline, stage

    def __enter__(self) -> None:
        self._began = perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._timeline.worked(self._stage, perf_counter() - self._began)
