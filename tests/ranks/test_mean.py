"""Means over ranks, with threads for ranks."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from cutlayer.aggregation.at_server import RunningMean
from cutlayer.aggregation.robust import MeanRule
from cutlayer.codecs import codec
from cutlayer.protocol.run_codecs import RunCodecs
from cutlayer.ranks.mean import RankMean
from cutlayer.split.weights import mean_weights
from cutlayer.wire.messages.types import Share, SyncUp

SAMPLES = [3, 5, 2, 7, 4]
WORLD = 3
BLOCKS = [[0, 1], [2, 3], [4]]
DENSE = codec("dense")
CODECS = RunCodecs(DENSE, DENSE, DENSE, 0, vector_sizes=(6, 2))


class Threads:
    """What `RankGroup` does, for threads of one process."""

    def __init__(self, world: int) -> None:
        self.barrier = threading.Barrier(world)
        self.slots: list[Any] = [None] * world

    def all(self, place: int, value: Any) -> list[Any]:
        self.slots[place] = value
        self.barrier.wait(30)
        found = list(self.slots)
        self.barrier.wait(30)
        return found


class ThreadGroup:
    def __init__(self, hub: Threads, place: int) -> None:
        self.hub, self.place, self.world = hub, place, len(hub.slots)

    def talk(self, point: str, **say: Any) -> list[dict[str, Any]]:
        said = self.hub.all(self.place, (point, say))
        assert {at for at, _ in said} == {point}
        return [words for _, words in said]

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor.copy_(torch.stack(self.hub.all(self.place, tensor.clone())).sum(0))

    def broadcast(self, tensor: Tensor, place: int) -> Tensor:
        return tensor.copy_(self.hub.all(self.place, tensor.clone())[place])

    def exchange(self, data: bytes) -> list[bytes]:
        return self.hub.all(self.place, data)


def shares(kind: Share = Share.WEIGHTS) -> list[SyncUp]:
    made = torch.Generator().manual_seed(1)
    found = []
    for _ in SAMPLES:
        first, second = (DENSE.encode(torch.randn(n, generator=made)) for n in (6, 2))
        body = (first if kind != Share.BUFFERS else b"", second if kind != Share.GRADIENTS else b"")
        found.append(SyncUp(1, b"".join(body), kind, len(body[0])))
    return found


def over_ranks(rule: MeanRule, weighting: Any, *, exact: bool, kind: Share, who: set[int]) -> list[bytes]:
    """The mean as each rank has it."""
    hub = Threads(WORLD)

    def one(place: int) -> bytes:
        own = [client for client in BLOCKS[place] if client in who]
        samples = [SAMPLES[client] for client in own]
        mean = RankMean(CODECS, samples, weighting, rule, ThreadGroup(hub, place), exact=exact)  # type: ignore[arg-type]
        for client in own:
            mean.add(client, shares(kind)[client])
        mean.finish()
        return mean.exact(1).content

    with ThreadPoolExecutor(WORLD) as pool:
        return list(pool.map(one, range(WORLD)))


def alone(rule: MeanRule, weighting: Any, kind: Share, who: set[int]) -> bytes:
    own = sorted(who)
    mean = RunningMean(CODECS, mean_weights([SAMPLES[client] for client in own], weighting), rule)
    for client in own:
        mean.add(client, shares(kind)[client])
    return mean.exact(1).content


@pytest.mark.parametrize("kind", [Share.WEIGHTS, Share.GRADIENTS, Share.BUFFERS])
@pytest.mark.parametrize("weighting", ["clients", "samples"])
@pytest.mark.parametrize("who", [{0, 1, 2, 3, 4}, {0, 4}, {2}], ids=["all", "ends", "one"])
def test_exact_means_have_the_bits_of_one_process(kind: Share, weighting: str, who: set[int]) -> None:
    expected = alone(MeanRule(), weighting, kind, who)
    assert over_ranks(MeanRule(), weighting, exact=True, kind=kind, who=who) == [expected] * WORLD


@pytest.mark.parametrize("weighting", ["clients", "samples"])
def test_partial_sums_agree_to_rounding_and_are_the_same_everywhere(weighting: str) -> None:
    who = {0, 2, 3, 4}
    found = over_ranks(MeanRule(), weighting, exact=False, kind=Share.GRADIENTS, who=who)
    assert len(set(found)) == 1
    expected = alone(MeanRule(), weighting, Share.GRADIENTS, who)
    torch.testing.assert_close(CODECS.decode(found[0]), CODECS.decode(expected), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("rule", [MeanRule("median"), MeanRule("trimmed", 0.3)], ids=["median", "trimmed"])
def test_rules_that_need_all_shares_get_all(rule: MeanRule) -> None:
    who = {0, 1, 2, 3, 4}
    expected = alone(rule, "clients", Share.WEIGHTS, who)
    assert over_ranks(rule, "clients", exact=False, kind=Share.WEIGHTS, who=who) == [expected] * WORLD
