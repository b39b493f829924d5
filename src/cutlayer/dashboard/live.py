"""A run watched for all open pages at once: files are read once for all, and not at all if nobody looks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from cutlayer.dashboard.watcher import Watcher

#: Seconds between two looks at the files while a page is open.
EVERY = 0.25
# Curves are the largest part of a snapshot, and nobody sees them move more often.
_CURVES_EVERY = 1.0


class Live:
    """The snapshots of a run. All its methods belong to one event loop."""

    def __init__(self, watcher: Watcher) -> None:
        self.viewers = 0
        self._watcher = watcher
        self._lock = asyncio.Lock()
        self._looked = 0.0
        self._run: dict[str, Any] = {}
        self._clients: list[dict[str, Any]] = []
        self._curves: dict[str, Any] = {}
        self._curves_at = 0.0
        self._events: list[dict[str, Any]] = []

    async def look(self) -> None:
        """Read what is new, unless somebody just did."""
        async with self._lock:
            if time.monotonic() - self._looked >= EVERY / 2:
                await asyncio.to_thread(self._read)
                self._looked = time.monotonic()

    def everything(self) -> dict[str, Any]:
        """The last snapshot, as plain JSON."""
        return {"run": self._run, "clients": self._clients, "curves": self._curves, "events": self._events}

    async def changes(self) -> AsyncIterator[dict[str, Any]]:
        """A snapshot now, and again and again while somebody takes them."""
        self.viewers += 1
        try:
            while True:
                await self.look()
                yield self.everything()
                await asyncio.sleep(EVERY)
        finally:
            self.viewers -= 1

    def _read(self) -> None:
        while self._watcher.look():
            pass
        self._run = self._watcher.snapshot()
        self._clients = self._watcher.clients()
        self._events = list(self._watcher.events)
        if time.monotonic() - self._curves_at >= _CURVES_EVERY:
            self._curves = self._watcher.curves()
            self._curves_at = time.monotonic()
