"""Link shaping: exact on a clock that the test turns, in order, and without adding latencies up."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from cutlayer.errors import LinkError
from cutlayer.wire.link.model import Link
from cutlayer.wire.link.shaping import AHEAD, ROUNDING, DelayLine, Pacer
from cutlayer.wire.meter import Direction


class Time:
    """A clock that jumps to the next sleeper when nobody has anything else to do."""

    def __init__(self, late: float = 0.0) -> None:
        self.now = 100.0
        self.late = late
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds + self.late, id(woken), woken))
        await woken

    def run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        async def drive() -> Any:
            task = asyncio.create_task(work())
            while not task.done():
                for _ in range(20):
                    await asyncio.sleep(0)
                if self._sleepers and not task.done():
                    when, _, woken = heapq.heappop(self._sleepers)
                    self.now = max(self.now, when)
                    if not woken.done():
                        woken.set_result(None)
            return task.result()

        return asyncio.run(drive())


def deliveries(time: Time, pacer: Pacer, work: Callable[[DelayLine[int]], Awaitable[Any]]):
    """(message, seconds since the start) in the order of arrival, and when the sender was done."""
    arrived: list[tuple[int, float]] = []
    begin = time.now

    async def write(message: int) -> None:
        arrived.append((message, time.now - begin))

    async def main() -> float:
        async with DelayLine(pacer, write, time.sleep) as line:
            await work(line)
            sent = time.now - begin
            await line.drain()
            return sent

    return arrived, time.run(main)


def test_one_message_takes_what_the_formula_says() -> None:
    link = Link.parse("up=100mbit,down=10mbit,latency=10ms")
    for direction in Direction:
        time = Time()
        pacer = Pacer.of(link, direction, time.clock)
        arrived, _ = deliveries(time, pacer, lambda line: line.send(1, 1_250_000))
        assert arrived[0][1] == pytest.approx(link.seconds(direction, 1_250_000), abs=ROUNDING + 1e-9)


def test_latencies_overlap_and_order_is_kept() -> None:
    time = Time()
    pacer = Pacer(8e6, 0.5, time.clock)  # 1 MB/s, half a second

    async def ten(line: DelayLine[int]) -> None:
        for number in range(10):
            await line.send(number, 100_000)

    arrived, sent = deliveries(time, pacer, ten)
    assert [number for number, _ in arrived] == list(range(10))
    assert [when for _, when in arrived] == pytest.approx(
        [0.5 + 0.1 * (n + 1) for n in range(10)], abs=ROUNDING + 1e-9
    )
    # The sender felt the rate, not the latency.
    assert sent == pytest.approx(1.0 - AHEAD, abs=1e-6)


@pytest.mark.parametrize("nbytes", [1_000, 10_000, 100_000, 1_000_000, 10_000_000])
def test_the_rate_is_kept_although_every_timer_is_late(nbytes: int) -> None:
    time = Time(late=0.002)
    pacer = Pacer(100e6, 0.01, time.clock)
    count = max(3, 30_000_000 // nbytes // 10)

    async def stream(line: DelayLine[int]) -> None:
        for number in range(count):
            await line.send(number, nbytes)

    arrived, _ = deliveries(time, pacer, stream)
    rate = 8 * nbytes * count / (arrived[-1][1] - 0.01)
    assert rate == pytest.approx(100e6, rel=0.02)


def test_an_idle_line_saves_nothing_up() -> None:
    time = Time()
    pacer = Pacer(8e6, 0.0, time.clock)

    async def twice(line: DelayLine[int]) -> None:
        await line.send(1, 1_000_000)
        await time.sleep(10)
        await line.send(2, 1_000_000)

    arrived, _ = deliveries(time, pacer, twice)
    assert arrived[1][1] - arrived[0][1] == pytest.approx(10 + 1 - AHEAD, abs=2 * ROUNDING)


def test_a_broken_connection_reaches_the_sender() -> None:
    async def write(message: int) -> None:
        raise ConnectionResetError("gone")

    async def main() -> None:
        async with DelayLine(Pacer(8e6), write) as line:
            await line.send(1, 10)
            with pytest.raises(ConnectionResetError, match="gone"):
                await line.drain()
            with pytest.raises(ConnectionResetError, match="gone"):
                await line.send(2, 10)

    asyncio.run(main())


def test_several_senders_share_the_line() -> None:
    time = Time()
    pacer = Pacer(8e6, 0.0, time.clock)

    async def both(line: DelayLine[int]) -> None:
        async def one(number: int) -> None:
            for _ in range(5):
                await line.send(number, 100_000)

        await asyncio.gather(one(1), one(2))

    arrived, _ = deliveries(time, pacer, both)
    assert len(arrived) == 10
    assert arrived[-1][1] == pytest.approx(1.0, abs=ROUNDING + 1e-9)


def test_impossible_links_and_closed_lines() -> None:
    for rate, latency in ((0, 0), (-1, 0), (float("nan"), 0), (1, -1)):
        with pytest.raises(LinkError):
            Pacer(rate, latency)

    async def write(message: int) -> None: ...

    with pytest.raises(LinkError, match="async with"):
        asyncio.run(DelayLine(Pacer(1), write).send(1, 1))
