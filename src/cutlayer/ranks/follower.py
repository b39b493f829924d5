"""A rank that is not the leader: it does what the leader commands, until the run ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from cutlayer.errors import CheckpointError, DivergedError, NonFiniteError, RollbackError
from cutlayer.protocol.state_bytes import from_bytes
from cutlayer.ranks.group import RankGroup, TogetherNonFiniteError, TogetherRollbackError
from cutlayer.ranks.server import RankServer
from cutlayer.ranks.sharding import ShardedHalf


@dataclass(frozen=True)
class Ending:
    """How the leader's run ended."""

    kind: Literal["done", "stopped", "failed"]
    why: str = ""


class Follower:
    """Carries out commands. `make_server` builds this rank's server at the very beginning of the run."""

    def __init__(self, group: RankGroup, make_server: Callable[[], RankServer]) -> None:
        self._group = group
        self._make_server = make_server
        self._server: RankServer | None = None
        self._trouble: RollbackError | NonFiniteError | None = None
        """What went wrong where nobody waited to hear it."""

    def run(self) -> Ending:
        """Follow until the leader says that it is over."""
        while True:
            command = self._group.command()
            name = command.pop("name")
            if name == "end":
                return Ending(**command)
            try:
                self._do(name, command)
            except (TogetherRollbackError, TogetherNonFiniteError, DivergedError):
                # The leader knows, and says what comes next.
                continue
            except (RollbackError, NonFiniteError) as error:
                self._trouble = error

    def _do(self, name: str, about: dict[str, object]) -> None:
        if name == "build":
            self._server, self._trouble = self._make_server(), None
            return
        server = self._server
        if server is None:
            raise RuntimeError(f"the leader commands to {name} before there is a server")
        if name in ("step", "average", "state") and self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            self._group.fail(trouble)
        if name == "step":
            if about["number"] != server.number:
                raise RuntimeError(f"the leader is at step {about['number']}, this rank at {server.number}")
            server.step()
        elif name == "average":
            server.follow_average()
        elif name == "state":
            server.state()
        elif name == "restore":
            tensors = from_bytes(self._group.send_all(None))
            try:
                server.restore(tensors, about["state"])  # type: ignore[arg-type]
            except (CheckpointError, LookupError, TypeError, ValueError):
                # The leader finds the same, and takes an earlier one.
                return
        elif name == "forward" and isinstance(server.half, ShardedHalf):
            server.half.follow_run()
        elif name == "begin":
            server.clients.begin(server.number)
        elif name == "rolled_back":
            server.clients.rolled_back(server.number, str(about["why"]))
        else:
            raise RuntimeError(f"the leader commands what this release does not know: {name}")
