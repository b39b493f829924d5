"""The server's half at several ranks: gradients are summed over them, so that all make the same update.

With `exact`, ranks take turns: each goes on with the gradients and the batch-norm statistics of those before
it, and so adds in client order, as a single process does. Without, they work at the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from cutlayer.protocol.plan import Plan, Step
from cutlayer.ranks.group import RankGroup, flatten, unflatten
from cutlayer.ranks.sharding import ShardedHalf
from cutlayer.server.modes import ServerWork
from cutlayer.split.weights import mean_weights
from cutlayer.wire.homes import Homes


@dataclass(frozen=True)
class RankWork(ServerWork):
    """The work of one rank in a step."""

    group: RankGroup
    plan: Plan
    homes: Homes
    exact: bool

    def weights(self, step: Step) -> list[float]:
        """See `ServerWork.weights`. Clients of all ranks are in the mean."""
        whole = self.plan.at(step.number)
        found = dict(zip(whole.clients, mean_weights(whole.samples, self.weighting), strict=True))
        return [found[client] for client in step.clients]

    @contextmanager
    def in_turn(self, step: Step, *, forward: bool = True) -> Iterator[None]:
        """See `ServerWork.in_turn`."""
        if self.exact:
            for place in range(self.group.place):
                self._pass_on(place)
            yield
            for place in range(self.group.place, self.group.world):
                self._pass_on(place)
            return
        norms = running_norms(self.half.part) if forward else []
        before = _statistics(norms)
        with self._in_step(step):
            yield
        if norms:
            self._merge(norms, before, step)

    def update(self, step: Step) -> None:
        """See `ServerWork.update`."""
        if not self.exact:
            self.group.talk("update")
        if not (self.exact or isinstance(self.half, ShardedHalf)):
            parameters = self.half.parameters
            with self.timeline.server("sync"):
                total = self.group.sum(flatten(self.half.collected, parameters))
            self.half.collect_instead(unflatten(total, parameters))
        super().update(step)

    def _in_step(self, step: Step) -> AbstractContextManager[None]:
        """Ranks that share weights make their passes together, and wait for no client meanwhile."""
        if not isinstance(self.half, ShardedHalf):
            return nullcontext()
        self.group.talk("passes")
        places = Counter(self.homes.place_of(client) for client in self.plan.at(step.number).clients)
        return self.half.in_step(max(places.values()))

    def _pass_on(self, place: int) -> None:
        """One rank has had its turn: all go on with its gradients and buffers."""
        self.group.talk("turn")
        parameters = self.half.parameters
        total = self.group.broadcast(flatten(self.half.collected, parameters), place)
        self.half.collect_instead(unflatten(total, parameters))
        for buffer in self.half.part.buffers():
            self.group.broadcast(buffer, place)

    def _merge(self, norms: list[_BatchNorm], before: list[Tensor], step: Step) -> None:
        """Make running statistics what they are when one process makes all passes, in client order.

        A pass leaves (1 - momentum) of what was there. So what a rank's passes have added counts with what
        the passes of later ranks leave of it.
        """
        clients = self.plan.at(step.number).clients
        later = sum(self.homes.place_of(client) > self.homes.place for client in clients)
        own = len(step.clients)
        keeps = [1 - float(norm.momentum or 0) for norm in norms for _ in range(2)]
        added = [
            (now - old * keep**own) * keep**later
            for now, old, keep in zip(_statistics(norms), before, keeps, strict=True)
        ]
        self.group.talk("norms")
        total = torch.split(self.group.sum(torch.cat(added)), [len(old) for old in before])
        merged = [
            new + old * keep ** len(clients) for new, old, keep in zip(total, before, keeps, strict=True)
        ]
        with torch.no_grad():
            for norm, mean, variance in zip(norms, merged[::2], merged[1::2], strict=True):
                _of(norm.running_mean).copy_(mean)
                _of(norm.running_var).copy_(variance)
                if norm.num_batches_tracked is not None:
                    norm.num_batches_tracked += len(clients) - own


def running_norms(part: nn.Module) -> list[_BatchNorm]:
    """The batch-norm layers that keep running statistics."""
    return [m for m in part.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None]


def _statistics(norms: list[_BatchNorm]) -> list[Tensor]:
    return [_of(t).detach().clone() for norm in norms for t in (norm.running_mean, norm.running_var)]


def _of(tensor: Tensor | None) -> Tensor:
    if tensor is None:
        raise TypeError("a batch norm without running statistics")
    return tensor
