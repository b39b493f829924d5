"""A link of a given rate and latency on a real connection, without root: the sender waits.

A message begins to leave when the one before it has left, takes `8 * bytes / rate` seconds to leave, and
arrives `latency` later. So messages share the rate, but latencies overlap: ten small messages on a link of
10 ms arrive after little more than 10 ms, not after 100. That is the formula of `Link.seconds`, for a line
that is never reset by rounding: a timer that fires late delays one message, not those behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Self, TypeVar

from cutlayer.errors import LinkError
from cutlayer.wire.link.model import Link
from cutlayer.wire.meter import Direction

T = TypeVar("T")
Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]
#: Sends a message that counts as so many bytes on a link.
Write = Callable[[Any, int], Awaitable[None]]

#: How far ahead of the line a sender may hand messages over, in seconds: what a socket's buffer would hold.
AHEAD = 0.05
#: The event loop's timers count whole milliseconds and round up. Half of one makes them right on average.
ROUNDING = 0.0005
#: Seconds beyond what the link takes for a peer to read the end of a conversation.
_LAST_WORDS = 5.0


class Pacer:
    """When each message leaves and arrives, if it is handed over now. Only counts; waits for nothing."""

    def __init__(self, rate: float, latency: float = 0.0, clock: Clock = time.monotonic) -> None:
        if not rate > 0 or not latency >= 0:
            raise LinkError(f"a link of {rate} bit/s and {latency} s cannot be; give a rate above 0")
        self.rate = rate
        self.latency = latency
        self.clock = clock
        self.free = clock()
        """When the last message will have left, and the line is free."""

    @classmethod
    def of(cls, link: Link, direction: Direction, clock: Clock = time.monotonic) -> Pacer:
        """The pacer of one direction of a link."""
        return cls(link.up if direction == Direction.UP else link.down, link.latency, clock)

    def reserve(self, nbytes: int) -> float:
        """Take the line for a message, and say when its last bit arrives."""
        self.free = max(self.free, self.clock()) + nbytes * 8 / self.rate
        return self.free + self.latency


class DelayLine(Generic[T]):
    """Hands messages on, in order, when a link would have delivered them.

    `send` returns when the line can take more, so a sender feels the rate but not the latency. An error of
    `write` ends the line and is raised by the next `send` or `drain`.

        async with DelayLine(Pacer.of(link, Direction.UP), stream.write) as line:
            await line.send(message, len(message))
    """

    def __init__(
        self, pacer: Pacer, write: Callable[[T], Awaitable[object]], sleep: Sleep = asyncio.sleep
    ) -> None:
        self._pacer = pacer
        self._write = write
        self._sleep = sleep
        self._queue: asyncio.Queue[tuple[float, T]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        # Two senders at once must not both see room for one.
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._deliver(), name="link shaping")
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        """End. What has not arrived by now is lost, as when a cable is cut: `drain` first."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def send(self, message: T, nbytes: int) -> None:
        """Put a message on the line. Waits while the line has more to carry than it may hold."""
        async with self._turn:
            self._check()
            self._queue.put_nowait((self._pacer.reserve(nbytes), message))
            while (full := self._pacer.free - self._pacer.clock() - AHEAD) > ROUNDING:
                await self._sleep(full)
                self._check()

    async def drain(self) -> None:
        """Wait until all that was sent has been handed on."""
        if self._task is None:
            return
        empty = asyncio.ensure_future(self._queue.join())
        await asyncio.wait((empty, self._task), return_when=asyncio.FIRST_COMPLETED)
        empty.cancel()
        self._check()

    async def _deliver(self) -> None:
        while True:
            due, message = await self._queue.get()
            while (early := due - self._pacer.clock() - ROUNDING) > 1e-6:
                await self._sleep(early)
            await self._write(message)
            self._queue.task_done()

    def _check(self) -> None:
        if self._task is None:
            raise LinkError("the delay line is not open; use it in `async with`")
        if self._task.done():
            self._task.result()
            raise LinkError("the delay line has ended")


async def shaped(
    stack: contextlib.AsyncExitStack, link: Link | None, direction: Direction, write: Callable[[Any], Any]
) -> Write:
    """What sends messages, no faster than a link would if there is one."""
    if link is None:
        return lambda message, nbytes: write(message)
    pacer = Pacer.of(link, direction)
    line = await stack.enter_async_context(DelayLine(pacer, write))

    async def drain() -> None:
        # A goodbye is the last thing that is written: it has to arrive before the stream ends. But a peer
        # that does not read must not keep the stream: it gets what the link takes, and a little.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(line.drain(), max(0.0, pacer.free - pacer.clock()) + _LAST_WORDS)

    stack.push_async_callback(drain)
    return line.send
