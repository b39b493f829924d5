"""A display of a run that also keeps its status and its log of events."""

from __future__ import annotations

from typing import Any

from cutlayer.training.progress import Display, Record
from cutlayer.training.status.run_status import RunStatus
from cutlayer.wire import log


class WatchedDisplay:
    """Passes everything on to a display, and tells the status when training begins."""

    def __init__(self, status: RunStatus, shown: Display) -> None:
        self._status = status
        self._shown = shown

    def begin(self, epochs: int, steps: int, done: int, *more: Any) -> None:
        """See `Display.begin`."""
        self._status.training(epochs, steps, done)
        self._shown.begin(epochs, steps, done, *more)

    def step(self, record: Record) -> None:
        """See `Display.step`."""
        self._shown.step(record)

    def epoch(self, record: Record) -> None:
        """See `Display.epoch`."""
        self._shown.epoch(record)

    def note(self, text: str) -> None:
        """See `Display.note`. It is an event of the run."""
        log.event("note", "warning", text=text)
        self._shown.note(text)

    def close(self) -> None:
        """See `Display.close`."""
        self._shown.close()
