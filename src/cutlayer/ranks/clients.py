"""The clients of the leader: what it begins with its own, the other ranks begin with theirs."""

from __future__ import annotations

from typing import Any

from cutlayer.ranks.group import RankGroup
from cutlayer.server.remote_clients import RemoteClients


class LeaderClients(RemoteClients):
    """The leader's own clients; the other ranks hear of what happens to all."""

    def __init__(self, *parts: Any, group: RankGroup, **settings: Any) -> None:
        """See `RemoteClients` for the rest."""
        super().__init__(*parts, **settings)
        self._group = group

    def begin(self, number: int) -> None:
        """See `ClientPool.begin`."""
        self._group.command("begin")
        super().begin(number)

    def rolled_back(self, number: int, reason: str) -> None:
        """See `ClientPool.rolled_back`."""
        self._group.command("rolled_back", why=reason)
        super().rolled_back(number, reason)
