"""Requests that come together are computed together, each gets its own answer, and nobody waits for ever."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from cutlayer.errors import ConfigError, CutlayerError, MessageError, RefusedError
from cutlayer.inference.batcher import Batcher, Batching


class Doubler:
    """Answers each request with itself twice; a request's length is its number of samples."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        self.may_go = threading.Event()
        self.may_go.set()

    def admit(self, request: bytes) -> tuple[bytes, int]:
        if request.startswith(b"bad"):
            raise MessageError("a bad request")
        return request, len(request)

    def infer(self, items: Sequence[bytes]) -> list[bytes | CutlayerError]:
        assert self.may_go.wait(30)
        self.batches.append(list(items))
        if b"crash" in items:
            raise ZeroDivisionError
        return [MessageError("odd") if item == b"odd" else item * 2 for item in items]


def run(engine: Doubler, batching: Batching, work):
    async def main():
        async with Batcher(engine, batching) as batcher:
            return await asyncio.wait_for(work(batcher), 60)

    return asyncio.run(main())


def test_requests_that_come_together_share_a_pass() -> None:
    engine = Doubler()
    requests = [bytes([65 + n]) * 3 for n in range(10)]

    async def work(batcher):
        return await asyncio.gather(*(batcher.ask(request) for request in requests))

    answers = run(engine, Batching(samples=12, wait=0.5), work)
    assert answers == [request * 2 for request in requests]
    assert sum(map(len, engine.batches)) == 10
    assert all(sum(map(len, batch)) <= 12 for batch in engine.batches)
    assert len(engine.batches) < 10


def test_what_arrives_during_a_pass_goes_into_the_next() -> None:
    engine = Doubler()
    engine.may_go.clear()

    async def work(batcher):
        first = asyncio.create_task(batcher.ask(b"a"))
        while batcher._line or not batcher.pending or first.done():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)  # the first is with the model by now, alone
        others = [asyncio.create_task(batcher.ask(bytes([98 + n]))) for n in range(5)]
        while len(batcher._line) < 5:
            await asyncio.sleep(0.01)
        engine.may_go.set()
        return await asyncio.gather(first, *others)

    answers = run(engine, Batching(wait=0), work)
    assert answers == [b"aa", b"bb", b"cc", b"dd", b"ee", b"ff"]
    assert [len(batch) for batch in engine.batches] == [1, 5]


def test_one_bad_request_disturbs_nobody() -> None:
    async def work(batcher):
        requests = (b"bad", b"x", b"odd", b"y" * 9)
        return await asyncio.gather(*map(batcher.ask, requests), return_exceptions=True)

    bad, good, odd, large = run(Doubler(), Batching(samples=8, wait=0.1), work)
    assert isinstance(bad, MessageError)
    assert good == b"xx"
    assert str(odd) == "odd"
    assert isinstance(large, RefusedError)
    assert "8 at most" in str(large)


def test_a_model_that_fails_is_told_and_the_next_request_served() -> None:
    async def work(batcher):
        with pytest.raises(RefusedError, match="ZeroDivisionError"):
            await batcher.ask(b"crash")
        return await batcher.ask(b"x")

    assert run(Doubler(), Batching(), work) == b"xx"


def test_who_shares_a_pass_with_a_request_that_ends_it_is_answered() -> None:
    engine = Doubler()

    async def work(batcher):
        requests = (b"x", b"crash", b"y")
        return await asyncio.gather(*map(batcher.ask, requests), return_exceptions=True)

    before, crash, behind = run(engine, Batching(samples=16, wait=0.5), work)
    assert (before, behind) == (b"xx", b"yy")
    assert "ZeroDivisionError" in str(crash)
    assert [len(batch) for batch in engine.batches] == [3, 1, 1, 1]


def test_too_many_at_once_are_refused() -> None:
    engine = Doubler()
    engine.may_go.clear()

    async def work(batcher):
        two = [asyncio.create_task(batcher.ask(b"x")) for _ in range(2)]
        while batcher.pending < 2:
            await asyncio.sleep(0.01)
        with pytest.raises(BlockingIOError, match="come again"):
            await batcher.ask(b"y")
        engine.may_go.set()
        await asyncio.gather(*two)
        return await batcher.ask(b"y")

    assert run(engine, Batching(pending=2), work) == b"yy"


def test_callers_that_have_gone_cost_no_pass() -> None:
    engine = Doubler()

    async def work(batcher):
        gone = asyncio.create_task(batcher.ask(b"gone"))
        while not batcher._line:
            await asyncio.sleep(0.001)
        gone.cancel()
        return await batcher.ask(b"x")

    assert run(engine, Batching(wait=0.3), work) == b"xx"
    assert [item for batch in engine.batches for item in batch] == [b"x"]


def test_impossible_settings() -> None:
    for wrong in ({"samples": 0}, {"wait": -1}, {"wait": float("nan")}, {"pending": 0}):
        with pytest.raises(ConfigError):
            Batching(**wrong)
