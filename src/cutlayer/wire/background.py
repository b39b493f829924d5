"""An event loop in a thread of its own: the network goes on while the main thread computes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """Starts at once; `close` ends it."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Do the work on the loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout)

    def soon(self, function: Callable[[], object]) -> None:
        """Call a function on the loop, from any thread. Nothing happens after the end."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """Cancel what is left, and stop."""
        if self.loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(_cancel_all(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


async def _cancel_all() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
