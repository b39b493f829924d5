"""The running figures of a run: where it is, how good it is, what it cost, and how long it will take."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from cutlayer.units import size

# How fast averages forget: the loss and the pace shown are over about the last twenty steps.
_FORGET = 0.05


class Tally:
    """Adds up the records of a run for whoever displays them."""

    def __init__(self, epochs: int, steps: int, done: int) -> None:
        self.epochs = epochs
        self.steps = steps
        self.done = done
        self.loss = math.nan
        self.accuracy = math.nan
        self.up = self.down = self.raw = self.sent = 0
        self._pace = math.nan
        self._last = time.monotonic()

    def step(self, record: Mapping[str, Any]) -> None:
        """Take in one step."""
        now = time.monotonic()
        self._pace = _blend(self._pace, now - self._last)
        self._last = now
        self.done = record["global_step"]
        self.loss = _blend(self.loss, _number(record.get("loss")))
        sent = record.get("bytes", {})
        self.up += sent.get("up", 0)
        self.down += sent.get("down", 0)
        self.sent += sent.get("up/smashed", 0)
        self.raw += record.get("raw_bytes", {}).get("up/smashed", 0)

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Take in the end of an epoch. Evaluation does not count for the pace of steps."""
        if record.get("accuracy") is not None:
            self.accuracy = _number(record["accuracy"])
        self._last = time.monotonic()

    def remaining(self) -> float:
        """Seconds until the last step, at the present pace."""
        return math.nan if math.isnan(self._pace) else self._pace * (self.steps - self.done)

    def place(self) -> str:
        """Where the run is."""
        per_epoch = max(1, self.steps // max(1, self.epochs))
        epoch = min(self.epochs, -(-max(1, self.done) // per_epoch))
        return f"epoch {epoch}/{self.epochs}"

    def figures(self) -> str:
        """How good it is and what it has cost since it began or was resumed."""
        parts = [f"step {self.done}", f"loss {self.loss:.4f}"]
        if not math.isnan(self.accuracy):
            parts.append(f"accuracy {self.accuracy:.2%}")
        parts += [f"up {size(self.up)}", f"down {size(self.down)}"]
        if self.sent and self.raw > 1.05 * self.sent:
            parts.append(f"smashed data {self.raw / self.sent:.1f}x smaller")
        return "  ".join(parts)


def _blend(old: float, new: float) -> float:
    if math.isnan(old) or math.isnan(new):
        return new
    return old + _FORGET * (new - old)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
