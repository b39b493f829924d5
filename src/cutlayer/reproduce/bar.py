"""Progress of an experiment: a bar with the time left on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cutlayer.units import duration


class Bar:
    """Shows nothing; the base of those that do."""

    def begin(self, name: str, total: int, done: int) -> None:
        """There are so many cells, of which some were finished before."""

    def advance(self, key: str) -> None:
        """A cell is finished."""

    def note(self, text: str) -> None:
        """Something is under way that takes a while."""

    def close(self) -> None:
        """No more to show."""


class Lines(Bar):
    """A line now and then: for logs."""

    def __init__(self, stream: TextIO, every: float = 10.0) -> None:
        self._stream, self._every = stream, every
        self._name, self._total, self._done, self._before = "", 0, 0, 0
        self._began = self._last = time.monotonic()

    def begin(self, name: str, total: int, done: int) -> None:
        """Remember the totals."""
        self._name, self._total, self._done, self._before = name, total, done, done
        self._began = self._last = time.monotonic()

    def advance(self, key: str) -> None:
        """Print if it is time, and at the end."""
        self._done += 1
        now = time.monotonic()
        if now - self._last >= self._every or self._done == self._total:
            self._last = now
            pace = (now - self._began) / (self._done - self._before)
            left = duration(pace * (self._total - self._done))
            self.note(f"{self._name}: {self._done}/{self._total} cells, ETA {left}; finished {key}")

    def note(self, text: str) -> None:
        """Print it."""
        self._stream.write(f"{text}\n")
        self._stream.flush()


class LiveBar(Bar):
    """A bar that is redrawn in place."""

    def __init__(self, stream: TextIO) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(None),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[last]}"),
            console=Console(file=stream, highlight=False),
            transient=True,
            speed_estimate_period=600,
        )
        self._task = self._progress.add_task("", total=None, last="")

    def begin(self, name: str, total: int, done: int) -> None:
        """Start drawing."""
        self._progress.reset(self._task, total=total, completed=done, description=name, last="")
        self._progress.start()

    def advance(self, key: str) -> None:
        """Draw."""
        self._progress.update(self._task, advance=1, last=key)

    def note(self, text: str) -> None:
        """Print it above the bar."""
        self._progress.console.print(text)

    def close(self) -> None:
        """Give the terminal back."""
        self._progress.stop()


def bar(quiet: bool = False) -> Bar:
    """What suits standard error, where progress goes so that standard output stays clean."""
    if quiet:
        return Bar()
    return LiveBar(sys.stderr) if sys.stderr.isatty() else Lines(sys.stderr)
