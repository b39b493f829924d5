"""The display of a run while it trains: a progress bar, the records as JSON, or warnings only.

A display takes the same records as `records.jsonl` does.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TextIO

from cutlayer.plain_json import to_json
from cutlayer.tasks import Metric
from cutlayer.training.progress_bar import ProgressBar, progress_bar
from cutlayer.training.status.run_metrics import RunMetrics

Mode = Literal["auto", "quiet", "json"]
Record = Mapping[str, Any]


class Display(Protocol):
    """What the training loop tells while it runs."""

    def begin(self, epochs: int, steps: int, done: int, metrics: Sequence[Metric] = ()) -> None:
        """The run has so many epochs and steps in all, of which `done` were done before it was resumed.

        `metrics` are those that records of epochs have; the first is the main one.
        """

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
    return BarDisplay(progress_bar(out))


class Quiet:
    """Warnings only."""

    def begin(self, epochs: int, steps: int, done: int, metrics: Sequence[Metric] = ()) -> None:
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


class BarDisplay:
    """A progress bar with the run's metrics, and a line for each epoch."""

    def __init__(self, bar: ProgressBar) -> None:
        self._bar = bar
        self._metrics = RunMetrics(0, 0, 0)

    def begin(self, epochs: int, steps: int, done: int, metrics: Sequence[Metric] = ()) -> None:
        """Start the bar."""
        self._metrics = RunMetrics(epochs, steps, done, metrics)
        self._bar.begin(steps, done)

    def step(self, record: Record) -> None:
        """Move the bar."""
        self._metrics.step(record)
        self._bar.update(self._metrics.done, self._metrics.place(), self._metrics.summary())

    def epoch(self, record: Record) -> None:
        """Leave a line behind."""
        self._metrics.epoch(record)
        self._bar.line(f"{self._metrics.place()}  {self._metrics.summary()}")

    def note(self, text: str) -> None:
        """Pass it on."""
        self._bar.note(text)

    def close(self) -> None:
        """Close the bar."""
        self._bar.close()
