"""Where the time of a step goes, and what it would be on the given link."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from cutlayer.wire.link import Link, VirtualClock
from cutlayer.wire.messages import Report
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


class Timeline:
    """Seconds by stage as measured, and the virtual clock of a run with a link.

    Clients work at the same time, each on its own link: `client` and the two transfers lengthen only that
    client's own line, and `barrier` lets the server wait for the longest. What the server does lengthens
    the clock for everybody.
    """

    def __init__(self, link: Link | None) -> None:
        self.link = link
        self.clock = VirtualClock()
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self._lines: dict[int, float] = {}
        self._server = 0.0

    def begin(self) -> None:
        """Begin a step."""
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self._lines.clear()
        self._server = 0.0

    @contextmanager
    def server(self, stage: str) -> Iterator[None]:
        """Work at the server."""
        began = perf_counter()
        yield
        spent = perf_counter() - began
        self.seconds[stage] += spent
        self._server += spent

    def transfer(self, client: int, direction: Direction, nbytes: int) -> None:
        """Messages that travel together: the latency counts once."""
        if self.link is not None:
            taken = self.link.seconds(direction, nbytes)
            self._lines[client] = self._lines.get(client, 0.0) + taken

    def reported(self, client: int, report: Report) -> None:
        """What a client says about its turn."""
        own = (report.data, report.forward, report.encode, report.decode, report.backward)
        for stage, spent in zip(STAGES, own, strict=False):
            self.seconds[stage] += spent
        self._lines[client] = self._lines.get(client, 0.0) + sum(own)

    def barrier(self) -> None:
        """The server has waited for all clients, and done its own work."""
        self.clock.parallel(self._lines.values())
        self._lines.clear()
        self.clock.add(self._server)
        self._server = 0.0
