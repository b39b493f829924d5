"""A progress bar with the time left: redrawn in place on a terminal, plain lines in a log, or nothing.

Everything that takes long uses it: a run, the measurements of an experiment, the runs of a grid.
"""

from __future__ import annotations

import math
import sys
import time
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from cutlayer.units import duration


class ProgressBar:
    """Knows how much is done and how long the rest will take. Shows only notes; subclasses show the rest."""

    def __init__(self) -> None:
        self.total = self.done = self._before = 0.0
        self.label = self.details = ""
        self._began = time.monotonic()

    def begin(self, total: float, done: float = 0.0) -> None:
        """There is so much to do, of which some was done before."""
        self.total, self.done, self._before = total, done, done
        self._began = time.monotonic()

    def update(self, done: float, label: str = "", details: str = "") -> None:
        """So much is done now. `label` stands beside the bar, `details` beneath it."""
        self.done, self.label, self.details = done, label, details

    def line(self, text: str) -> None:
        """Leave a line of text behind."""

    def note(self, text: str) -> None:
        """Warn."""
        sys.stderr.write(f"{text}\n")

    def close(self) -> None:
        """There is no more to show."""

    def remaining(self) -> float:
        """Seconds until all is done, at the mean speed so far; NaN if nothing was done yet."""
        gained = self.done - self._before
        spent = time.monotonic() - self._began
        return spent * (self.total - self.done) / gained if gained > 0 else math.nan


class LogLines(ProgressBar):
    """Plain lines, at most one every ten seconds beside those that are to stay."""

    def __init__(self, stream: TextIO, every: float = 10.0) -> None:
        super().__init__()
        self._stream, self._every = stream, every
        self._last = time.monotonic()

    def update(self, done: float, label: str = "", details: str = "") -> None:
        """Print if it is time."""
        super().update(done, label, details)
        if time.monotonic() - self._last >= self._every:
            self.line(f"{label}  {details}")

    def line(self, text: str) -> None:
        """Print it, with the time left if that is known."""
        self._last = time.monotonic()
        left = self.remaining()
        self.note(text if math.isnan(left) else f"{text}  ETA {duration(left)}")

    def note(self, text: str) -> None:
        """Print it."""
        self._stream.write(f"{text}\n")
        self._stream.flush()


class TerminalBar(ProgressBar):
    """A bar with the details beneath it, redrawn in place."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._progress = Progress(
            TextColumn("{task.fields[label]}", markup=False),
            BarColumn(None),
            TextColumn("{task.percentage:.0f}%"),
            TextColumn("ETA {task.fields[eta]}"),
        )
        self._task = self._progress.add_task("", total=None, label="", eta="?")
        self._console = Console(file=stream, highlight=False)
        # Drawn by the caller's thread: one that draws by itself would read values half written.
        self._live = Live(console=self._console, auto_refresh=False, get_renderable=self._render)
        self._drawn = 0.0

    def begin(self, total: float, done: float = 0.0) -> None:
        """Start drawing."""
        super().begin(total, done)
        self._live.start()
        self._draw()

    def update(self, done: float, label: str = "", details: str = "") -> None:
        """Draw, a few times a second at most."""
        super().update(done, label, details)
        if time.monotonic() - self._drawn > 0.2:
            self._draw()

    def line(self, text: str) -> None:
        """Print it above the bar."""
        self._console.print(text, markup=False)
        self._draw()

    def note(self, text: str) -> None:
        """Print it above the bar, in yellow."""
        self._console.print(Text(text, style="yellow"))

    def close(self) -> None:
        """Draw for the last time, and give the terminal back."""
        if self._live.is_started:
            self._draw()
            self._live.stop()

    def _draw(self) -> None:
        if self._live.is_started:
            self._drawn = time.monotonic()
            self._live.refresh()

    def _render(self) -> Group:
        self._progress.update(
            self._task,
            total=self.total or None,
            completed=self.done,
            label=self.label,
            eta=duration(self.remaining()),
        )
        return Group(self._progress, Text(self.details, no_wrap=True, overflow="ellipsis"))


def progress_bar(stream: TextIO | None = None, *, quiet: bool = False) -> ProgressBar:
    """The bar that suits a stream: standard error unless another is given, so that output stays clean."""
    if quiet:
        return ProgressBar()
    out = sys.stderr if stream is None else stream
    return TerminalBar(out) if out.isatty() else LogLines(out)
