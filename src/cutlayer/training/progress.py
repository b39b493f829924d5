"""What a person, or a program, sees of a run while it trains.

All displays take the same records as the file of records does. On a terminal there is a live one;
into a pipe or a file, plain lines; `quiet` shows only warnings, and `json` prints the records themselves.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any, Literal, Protocol, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from cutlayer.training.figures import Tally
from cutlayer.training.records import to_json
from cutlayer.units import duration

Mode = Literal["auto", "quiet", "json"]
Record = Mapping[str, Any]


class Display(Protocol):
    """What the training loop tells while it runs."""

    def begin(self, epochs: int, steps: int, done: int) -> None:
        """The run has so many epochs and steps in all, of which `done` were done before it was resumed."""

    def step(self, record: Record) -> None:
        """A step is complete."""

    def epoch(self, record: Record) -> None:
        """An epoch is complete."""

    def note(self, text: str) -> None:
        """Something that a person should know, such as a damaged checkpoint."""

    def close(self) -> None:
        """The run is over, or has failed."""


def display(mode: Mode = "auto", stream: TextIO | None = None) -> Display:
    """The display for a mode. Warnings go to standard error where the output is for programs."""
    out = sys.stdout if stream is None else stream
    if mode == "json":
        return JsonLines(out)
    if mode == "quiet":
        return Quiet()
    return LiveDisplay(out) if out.isatty() else Lines(out)


class Quiet:
    """Warnings only."""

    def begin(self, epochs: int, steps: int, done: int) -> None:
        """Nothing to show."""

    def step(self, record: Record) -> None:
        """Nothing to show."""

    def epoch(self, record: Record) -> None:
        """Nothing to show."""

    def note(self, text: str) -> None:
        """Warn."""
        sys.stderr.write(f"{text}\n")

    def close(self) -> None:
        """Nothing to close."""


class JsonLines(Quiet):
    """The records, one a line, as they go to the file."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def step(self, record: Record) -> None:
        """Print the record."""
        self._print({"kind": "step", **record})

    def epoch(self, record: Record) -> None:
        """Print the record."""
        self._print({"kind": "epoch", **record})

    def _print(self, record: Record) -> None:
        self._stream.write(to_json(record) + "\n")
        self._stream.flush()


class Lines:
    """A line an epoch, and one every ten seconds in long epochs: for logs."""

    def __init__(self, stream: TextIO, every: float = 10.0) -> None:
        self._stream = stream
        self._every = every
        self._tally = Tally(0, 0, 0)
        self._last = time.monotonic()

    def begin(self, epochs: int, steps: int, done: int) -> None:
        """Remember the totals."""
        self._tally = Tally(epochs, steps, done)
        self._last = time.monotonic()

    def step(self, record: Record) -> None:
        """Print if it is time."""
        self._tally.step(record)
        if time.monotonic() - self._last >= self._every:
            self._print()

    def epoch(self, record: Record) -> None:
        """Print the epoch's end."""
        self._tally.epoch(record)
        self._print()

    def note(self, text: str) -> None:
        """Print it."""
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def close(self) -> None:
        """Nothing to close."""

    def _print(self) -> None:
        self._last = time.monotonic()
        tally = self._tally
        self.note(f"{tally.place()}  {tally.figures()}  ETA {duration(tally.remaining())}")


class LiveDisplay:
    """A bar and the figures beneath it, redrawn in place."""

    def __init__(self, stream: TextIO) -> None:
        self._tally = Tally(0, 0, 0)
        self._bar = Progress(
            TextColumn("{task.fields[place]}"),
            BarColumn(None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[eta]}"),
        )
        self._task = self._bar.add_task("", total=None, place="", eta="")
        self._console = Console(file=stream, highlight=False)
        # Our own drawing: a thread that draws by itself would read figures half written.
        self._live = Live(console=self._console, auto_refresh=False, get_renderable=self._render)
        self._drawn = 0.0

    def begin(self, epochs: int, steps: int, done: int) -> None:
        """Start drawing."""
        self._tally = Tally(epochs, steps, done)
        self._live.start()
        self._draw()

    def step(self, record: Record) -> None:
        """Draw, a few times a second at most."""
        self._tally.step(record)
        if time.monotonic() - self._drawn > 0.2:
            self._draw()

    def epoch(self, record: Record) -> None:
        """Leave a line behind for each epoch."""
        self._tally.epoch(record)
        self._console.print(f"{self._tally.place()}  {self._tally.figures()}")
        self._draw()

    def note(self, text: str) -> None:
        """Print it above the bar."""
        self._console.print(Text(text, style="yellow"))

    def close(self) -> None:
        """Draw for the last time, and give the terminal back."""
        if self._live.is_started:
            self._draw()
            self._live.stop()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        self._live.refresh()

    def _render(self) -> Group:
        tally = self._tally
        self._bar.update(
            self._task,
            total=tally.steps or None,
            completed=tally.done,
            place=tally.place(),
            eta=f"ETA {duration(tally.remaining())}",
        )
        return Group(self._bar, Text(tally.figures()))
