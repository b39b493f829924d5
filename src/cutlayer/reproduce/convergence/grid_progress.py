"""The progress of a grid of runs: how many are finished, and when all will be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cutlayer.training.progress_bar import ProgressBar


class GridProgress:
    """Takes the records of runs by name and moves a bar. A run that is under way counts by its steps."""

    def __init__(self, total: int, finished: int, bar: ProgressBar) -> None:
        self.total = total
        self.finished = finished
        self.running: dict[str, float] = {}
        """The share of each run that is done."""
        self._steps: dict[str, int] = {}
        self._bar = bar
        bar.begin(total, finished)

    def take(self, name: str, record: Mapping[str, Any]) -> None:
        """Something has happened in a run."""
        kind = record["kind"]
        if kind == "begin":
            self._steps[name] = max(1, record["steps"])
            self.running[name] = record["done"] / self._steps[name]
        elif kind == "step":
            self.running[name] = record["global_step"] / self._steps[name]
        elif kind == "epoch":
            accuracy = record.get("accuracy")
            reached = "" if accuracy is None else f", accuracy {accuracy:.2%}"
            self._bar.line(
                f"{name}: epoch {record['epoch']}, loss {record['train_loss']:.4f}{reached}  "
                f"[{self.finished} of {self.total} runs done]"
            )
        elif kind == "note":
            self._bar.note(f"{name}: {record['text']}")
        self._update()

    def done(self, name: str) -> None:
        """A run is complete."""
        self.running.pop(name, None)
        self.finished += 1
        self._update()

    def close(self) -> None:
        """Close the bar."""
        self._bar.close()

    def _update(self) -> None:
        done = self.finished + sum(self.running.values())
        self._bar.update(done, f"{self.finished}/{self.total} runs", ", ".join(self.running))
