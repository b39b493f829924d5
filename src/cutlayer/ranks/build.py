"""The parts of a server that differ where it has several ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from cutlayer.aggregation.robust import MeanRule
from cutlayer.protocol.plan import Plan
from cutlayer.protocol.run_codecs import RunCodecs
from cutlayer.protocol.tensor_forms import Forms
from cutlayer.ranks.checks import check_part
from cutlayer.ranks.clients import LeaderClients
from cutlayer.ranks.group import RankGroup
from cutlayer.ranks.mean import RankAggregation
from cutlayer.ranks.server import RankServer
from cutlayer.ranks.sharding import ShardedHalf
from cutlayer.ranks.work import RankWork
from cutlayer.server.modes import ServerWork
from cutlayer.server.remote_clients import RemoteClients
from cutlayer.server.split_server import SplitServer
from cutlayer.server.timeline import Timeline
from cutlayer.split.server import ServerHalf
from cutlayer.split.weights import Weighting
from cutlayer.wire.homes import Homes
from cutlayer.wire.transport import Transport


@dataclass(frozen=True)
class Ranks:
    """This rank of a server among the others."""

    group: RankGroup
    homes: Homes
    exact: bool
    sharded: bool

    def make_half(self, forms: Forms) -> Callable[..., ServerHalf]:
        """What makes the server's half, for smashed data of these forms."""
        return partial(ShardedHalf, group=self.group, forms=forms) if self.sharded else ServerHalf

    def make_pool(self, *parts: Any, **settings: Any) -> RemoteClients:
        """The rank's own clients."""
        if self.group.leads:
            return LeaderClients(*parts, group=self.group, **settings)
        return RemoteClients(*parts, **settings)

    def make_aggregation(
        self, codecs: RunCodecs, weighting: Weighting, transport: Transport, rule: MeanRule
    ) -> RankAggregation:
        """Means over the clients of all ranks."""
        return RankAggregation(codecs, weighting, transport, rule, self.group, exact=self.exact)

    def make_server(self, half: ServerHalf, plan: Plan, *parts: Any, **settings: Any) -> SplitServer:
        """The rank's server."""
        if not self.exact:
            check_part(half.part)
        work = partial(self._make_work, plan)
        return RankServer(
            half,
            plan,
            *parts,
            group=self.group,
            homes=self.homes,
            make_work=work,
            early=self.sharded,
            **settings,
        )

    def _make_work(
        self, plan: Plan, half: ServerHalf, timeline: Timeline, weighting: Weighting, seed: int
    ) -> ServerWork:
        return RankWork(half, timeline, weighting, seed, self.group, plan, self.homes, self.exact)
