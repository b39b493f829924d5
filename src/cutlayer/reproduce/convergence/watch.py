"""How far several runs are, and when all will be done: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from cutlayer.units import duration


class Watch:
    """Takes the records of runs by name. Progress counts in runs, of which some are done in part."""

    def __init__(self, total: int, finished: int, stream: TextIO | None = None, quiet: bool = False) -> None:
        self.total = total
        self.finished = finished
        self.running: dict[str, float] = {}
        self._steps: dict[str, int] = {}
        self._began = time.monotonic()
        self._gained = 0.0
        self._quiet = quiet
        out = sys.stderr if stream is None else stream
        self._console = Console(file=out, highlight=False, width=None if out.isatty() else 160)
        self._bar: Progress | None = None
        if out.isatty() and not quiet:
            self._bar = Progress(
                TextColumn("{task.fields[runs]} runs"),
                BarColumn(None),
                TextColumn("{task.percentage:.1f}%  ETA {task.fields[eta]}  {task.fields[names]}"),
                console=self._console,
                auto_refresh=False,
            )
            self._task = self._bar.add_task("", total=total, runs="", eta="?", names="")
            self._bar.start()
        self._drawn = 0.0

    def take(self, name: str, record: Mapping[str, Any]) -> None:
        """Something has happened in a run."""
        kind = record["kind"]
        if kind == "begin":
            self._steps[name] = max(1, record["steps"])
            self.running[name] = record["done"] / self._steps[name]
        elif kind == "step":
            share = record["global_step"] / self._steps[name]
            self._gained += share - self.running[name]
            self.running[name] = share
        elif kind == "epoch":
            self._say(name, record)
        elif kind == "note":
            self._console.print(f"{name}: {record['text']}", style="yellow", markup=False)
        self._draw()

    def done(self, name: str) -> None:
        """A run is complete."""
        self._gained += 1 - self.running.pop(name, 1.0)
        self.finished += 1
        self._draw(now=True)

    def close(self) -> None:
        """Give the terminal back."""
        if self._bar is not None:
            self._bar.stop()

    def remaining(self) -> float:
        """Seconds until all are done, at the pace so far."""
        left = self.total - self.finished - sum(self.running.values())
        spent = time.monotonic() - self._began
        return math.nan if self._gained <= 0 else left * spent / self._gained

    def _say(self, name: str, record: Mapping[str, Any]) -> None:
        if self._quiet:
            return
        accuracy = record.get("accuracy")
        reached = "" if accuracy is None else f", accuracy {accuracy:.2%}"
        self._console.print(
            f"{name}: epoch {record['epoch']}, loss {record['train_loss']:.4f}{reached}  "
            f"[{self.finished} of {self.total} runs done, ETA {duration(self.remaining())}]",
            markup=False,
        )

    def _draw(self, now: bool = False) -> None:
        if self._bar is None or (not now and time.monotonic() - self._drawn < 0.3):
            return
        self._drawn = time.monotonic()
        self._bar.update(
            self._task,
            completed=self.finished + sum(self.running.values()),
            runs=f"{self.finished}/{self.total}",
            eta=duration(self.remaining()),
            names=", ".join(self.running),
        )
        self._bar.refresh()
