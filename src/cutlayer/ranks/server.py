"""The split server of one rank: the steps of its own clients, together with the other ranks.

The leader's trainer calls it as it calls any server. What it begins here it commands the others to do, too
(`follower.py`), and what the others have found out is in its results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from cutlayer.aggregation.base import Round
from cutlayer.errors import NonFiniteError, RollbackError
from cutlayer.protocol.plan import Step
from cutlayer.protocol.state_bytes import from_bytes, to_bytes
from cutlayer.ranks.group import RankGroup, TogetherNonFiniteError, TogetherRollbackError
from cutlayer.ranks.mean import NOBODY
from cutlayer.ranks.sharding import ShardedHalf
from cutlayer.server.results import StepResult
from cutlayer.server.split_server import SplitServer
from cutlayer.split.state import restore_server, server_state
from cutlayer.wire.homes import Homes
from cutlayer.wire.meter import Direction, Kind


class RankServer(SplitServer):
    """Runs steps with the clients of one rank."""

    alone = False

    def __init__(self, *parts: Any, group: RankGroup, homes: Homes, **settings: Any) -> None:
        """See `SplitServer` for the rest."""
        super().__init__(*parts, **settings)
        self._group = group
        self._homes = homes

    def step(self) -> StepResult:
        """See `SplitServer.step`. The result is that of all ranks."""
        if self._group.leads:
            self._group.command("step", number=self.number)
        return super().step()

    def average_clients(self) -> Round:
        """See `SplitServer.average_clients`."""
        if self._group.leads:
            self._group.command("average")
        with self.together():
            mean = super().average_clients()
        self._add_traffic(self._group.talk("averaged", meter=self._own_traffic()))
        return mean

    def follow_average(self) -> None:
        """Take part in an average that the leader's evaluator gets."""
        with self.transport.meter.apart():
            self.average_clients().deliver_exact(self.number, NOBODY)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """See `SplitServer.state`. Of all ranks, at the leader; elsewhere that of the rank's own clients."""
        if self._group.leads:
            self._group.command("state")
        with self.together():
            tensors, state = super().state()
        said = self._group.talk("state", trained=state["trained"], server=self._digest())
        if len({one["server"] for one in said}) > 1:
            self._agree()
        for one in said:
            state["trained"] |= one["trained"]
        homes = self._homes
        own = {} if self._group.leads else {n: t for n, t in tensors.items() if _is_of(n, homes.own)}
        for place, data in enumerate(self._group.gather(to_bytes(own) if own else b"")):
            if data:
                _take_over(tensors, from_bytes(data), Homes(homes.clients, place, homes.world).own)
        return tensors, state

    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """See `SplitServer.restore`. The leader gives the others what it restores."""
        if self._group.leads:
            self._group.command("restore", state=state)
            self._group.send_all(to_bytes(tensors))
        else:
            state = {**state, "meter": {}}
        super().restore(tensors, state)
        self.trained = {client: n for client, n in self.trained.items() if client in self._homes.own}

    def half_state(self) -> dict[str, Tensor]:
        """See `SplitServer.half_state`. Shards are put together."""
        state = super().half_state()
        return self.half.whole(state) if isinstance(self.half, ShardedHalf) else state

    def restore_half(self, state: Mapping[str, Tensor]) -> None:
        """See `SplitServer.restore_half`."""
        super().restore_half(self.half.sharded(state) if isinstance(self.half, ShardedHalf) else state)

    @contextmanager
    def together(self) -> Iterator[None]:
        """What keeps this rank from going on inside is told to the others, so that nobody waits for it."""
        try:
            yield
        except (TogetherRollbackError, TogetherNonFiniteError):
            raise
        except (RollbackError, NonFiniteError) as error:
            self._group.fail(error)

    def _run(self, step: Step, size: int) -> StepResult:
        with self.together():
            result = super()._run(step.only(self._homes.own), size)
        said = self._group.talk(
            "step",
            losses=result.losses,
            errors=result.errors,
            raw=result.raw_bytes,
            bits=result.bits,
            meter=self._own_traffic(),
            seconds=self.timeline.seconds,
            clock=self.timeline.clock.seconds,
        )
        self._add_traffic(said)
        losses, errors = ([value for one in said for value in one[key]] for key in ("losses", "errors"))
        self.timeline.clock.restore({"seconds": max(one["clock"] for one in said)})
        self.timeline.seconds.update(_summed([one["seconds"] for one in said]))
        return StepResult(
            step=step,
            loss=self._mean(step, losses),
            losses=losses,
            error=self._mean(step, errors),
            errors=errors,
            raw_bytes=_summed([one["raw"] for one in said]),
            bits={client: bits for one in said for client, bits in one["bits"].items()},
        )

    def _own_traffic(self) -> dict[str, Any]:
        """What the leader has not counted yet."""
        if self._group.leads:
            return {}
        found = self.transport.meter.state()
        self.transport.meter.restore({})
        return found

    def _add_traffic(self, said: Sequence[Mapping[str, Any]]) -> None:
        if not self._group.leads:
            return
        for one in said:
            for client, counts in one["meter"].items():
                for key, count in counts.items():
                    direction, _, kind = key.partition("/")
                    self.transport.meter.add(Kind(kind), Direction(direction), count, int(client))

    def _digest(self) -> str:
        """Of the half, where every rank has all of it."""
        if isinstance(self.half, ShardedHalf):
            return ""
        return hashlib.sha256(to_bytes(dict(sorted(server_state(self.half).items())))).hexdigest()

    def _agree(self) -> None:
        """The leader's half for all: processors of different kinds may round updates differently."""
        data = self._group.send_all(to_bytes(server_state(self.half)) if self._group.leads else None)
        if not self._group.leads:
            restore_server(self.half, from_bytes(data))


def _summed(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sums by key, with the keys in the order in which they first come."""
    total: dict[str, Any] = {}
    for one in found:
        for key, value in one.items():
            total[key] = total.get(key, 0) + value
    return total


def _is_of(name: str, clients: Collection[int]) -> bool:
    """Whether a tensor of a checkpoint is that of one of these clients, or of all clients together."""
    first, _, rest = name.partition(".")
    return first == "clients" or (first == "client" and int(rest.partition(".")[0]) in clients)


def _take_over(tensors: dict[str, Tensor], found: Mapping[str, Tensor], own: Collection[int]) -> None:
    """Put the states of another rank's clients into a checkpoint, in the places that they have there."""
    for name, tensor in found.items():
        if name == "clients.buffers":
            rows = torch.tensor(sorted(own))
            tensors[name][rows] = tensor[rows]
        elif _is_of(name, own):
            tensors[name] = tensor
