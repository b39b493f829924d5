"""Many small requests, one pass: what arrives at about the same time is computed together.

Works on opaque items; what they are, how they are read and what is computed is the engine's business. The
engine never runs on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from cutlayer.errors import ConfigError, CutlayerError, RefusedError

T = TypeVar("T")


class Engine(Protocol[T]):
    """What reads requests and answers them. Both methods are called from threads."""

    def admit(self, request: bytes) -> tuple[T, int]:
        """A request as an item, and how many samples it has. Raises what is wrong with it."""

    def infer(self, items: Sequence[T]) -> Sequence[bytes | CutlayerError]:
        """The answers, one an item: each what it would be if the item were alone."""


@dataclass(frozen=True)
class Batching:
    """How requests are put together."""

    samples: int = 256
    """In one pass, and so at most in one request."""
    wait: float = 0.002
    """Seconds that the first request waits for company."""
    pending: int = 64
    """Requests that are read, wait or are computed; more are refused. It bounds the server's memory."""

    def __post_init__(self) -> None:
        if self.samples < 1 or self.pending < 1 or not 0 <= self.wait <= 60:
            raise ConfigError(
                f"a pass of {self.samples} samples, {self.wait} s of waiting and {self.pending} requests "
                "cannot be; give at least 1 sample and 1 request, and 0 to 60 s"
            )


@dataclass
class _Waiting(Generic[T]):
    item: T
    samples: int
    answer: asyncio.Future[bytes]


class Batcher(Generic[T]):
    """Collects requests for an engine. Use it in `async with`."""

    def __init__(self, engine: Engine[T], batching: Batching | None = None) -> None:
        self.engine = engine
        self.batching = batching or Batching()
        self.pending = 0
        self.passes = 0
        self._line: deque[_Waiting[T]] = deque()
        self._arrived = asyncio.Event()
        self._full = asyncio.Event()
        # Reading requests goes on while the model computes; one pass at a time uses all of its threads.
        self._readers = ThreadPoolExecutor(2, "read")
        self._model = ThreadPoolExecutor(1, "model")
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Batcher[T]:
        self._task = asyncio.create_task(self._work(), name="batches")
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for waiting in self._line:
            if not waiting.answer.done():
                waiting.answer.cancel()
        for pool in (self._readers, self._model):
            pool.shutdown(wait=True, cancel_futures=True)

    async def ask(self, request: bytes) -> bytes:
        """The answer to one request."""
        if self.pending >= self.batching.pending:
            raise BlockingIOError(f"{self.pending} requests are waiting already; come again in a moment")
        self.pending += 1
        try:
            loop = asyncio.get_running_loop()
            item, samples = await loop.run_in_executor(self._readers, self.engine.admit, request)
            if samples > self.batching.samples:
                raise RefusedError(
                    f"a request of {samples} samples; the server takes {self.batching.samples} at most"
                )
            waiting = _Waiting(item, samples, loop.create_future())
            self._line.append(waiting)
            self._arrived.set()
            if sum(each.samples for each in self._line) >= self.batching.samples:
                self._full.set()
            return await waiting.answer
        finally:
            self.pending -= 1

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._full.wait(), self.batching.wait)
            batch = self._take()
            if not batch:
                continue
            try:
                answers = await loop.run_in_executor(
                    self._model, self.engine.infer, [each.item for each in batch]
                )
            except Exception:  # of which request? Each alone tells, and nobody pays for another
                answers = [await loop.run_in_executor(self._model, self._alone, each.item) for each in batch]
            self.passes += 1
            for each, answer in zip(batch, answers, strict=True):
                if each.answer.done():
                    continue  # the caller has gone
                if isinstance(answer, CutlayerError):
                    each.answer.set_exception(answer)
                else:
                    each.answer.set_result(answer)

    def _alone(self, item: T) -> bytes | CutlayerError:
        try:
            return self.engine.infer([item])[0]
        except Exception as error:  # whatever it was, this caller must hear it and the next be served
            return RefusedError(f"the model cannot use this request ({type(error).__name__})")

    def _take(self) -> list[_Waiting[T]]:
        """The requests for the next pass, in order of arrival. Those whose callers have gone are left out."""
        batch: list[_Waiting[T]] = []
        room = self.batching.samples
        while self._line and self._line[0].samples <= room:
            each = self._line.popleft()
            if not each.answer.done():
                batch.append(each)
                room -= each.samples
        self._full.clear()
        if not self._line:
            self._arrived.clear()
        elif sum(each.samples for each in self._line) >= self.batching.samples:
            self._full.set()
        return batch
