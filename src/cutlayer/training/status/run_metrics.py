"""The metrics that are shown while a run trains: its place, loss, the task's metrics and traffic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cutlayer.tasks import Metric
from cutlayer.tasks.classification import Classification
from cutlayer.units import size

# The weight of the newest loss in the running mean, which spans about twenty steps.
_NEWEST = 0.05


class RunMetrics:
    """Adds up the records of a run for a display."""

    def __init__(self, epochs: int, steps: int, done: int, metrics: Sequence[Metric] = ()) -> None:
        self.epochs = epochs
        self.steps = steps
        self.done = done
        self.loss = math.nan
        self._shown = [metric for metric in metrics or Classification.metrics if not metric.minor]
        self._values: dict[str, float] = {}
        self.up = self.down = self.raw = self.sent = 0

    def step(self, record: Mapping[str, Any]) -> None:
        """Take in one step."""
        self.done = record["global_step"]
        self.loss = _blend(self.loss, _number(record.get("loss")))
        sent = record.get("bytes", {})
        self.up += sent.get("up", 0)
        self.down += sent.get("down", 0)
        self.sent += sent.get("up/smashed", 0)
        self.raw += record.get("raw_bytes", {}).get("up/smashed", 0)

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Take in the end of an epoch."""
        for metric in self._shown:
            if record.get(metric.name) is not None:
                self._values[metric.name] = _number(record[metric.name])

    def place(self) -> str:
        """The current epoch."""
        per_epoch = max(1, self.steps // max(1, self.epochs))
        epoch = min(self.epochs, -(-max(1, self.done) // per_epoch))
        return f"epoch {epoch}/{self.epochs}"

    def summary(self) -> str:
        """Loss and metrics, and the bytes since the run began or was resumed."""
        parts = [f"step {self.done}", f"loss {self.loss:.4f}"]
        parts += [
            f"{metric.name.replace('_', ' ')} {metric.text(self._values[metric.name])}"
            for metric in self._shown
            if metric.name in self._values
        ]
        parts += [f"up {size(self.up)}", f"down {size(self.down)}"]
        if self.sent and self.raw > 1.05 * self.sent:
            parts.append(f"smashed data {self.raw / self.sent:.1f}x smaller")
        return "  ".join(parts)


def _blend(old: float, new: float) -> float:
    if math.isnan(old) or math.isnan(new):
        return new
    return old + _NEWEST * (new - old)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
