"""What an epoch adds up to, kept in checkpoints so that resuming changes no record."""

import math
from collections.abc import Mapping
from typing import Any

from cutlayer.server.results import Evaluation, StepResult


class EpochSums:
    """Sums over the steps of an epoch."""

    def __init__(self) -> None:
        self._steps = 0
        self._loss = 0.0
        self._error = 0.0
        self._lr = 0.0
        self._bytes: dict[str, int] = {}
        self._raw: dict[str, int] = {}
        self._seconds: dict[str, float] = {}

    def add(self, result: StepResult) -> None:
        """Take in a step."""
        self._steps += 1
        self._loss += result.loss
        self._error += result.error
        self._lr = result.step.lr
        for sums, found in ((self._bytes, result.bytes), (self._raw, result.raw_bytes)):
            for key, value in found.items():
                sums[key] = sums.get(key, 0) + value
        for stage, spent in result.seconds.items():
            self._seconds[stage] = self._seconds.get(stage, 0.0) + spent

    def record(self, epoch: int, number: int, scored: Evaluation | None) -> dict[str, Any]:
        """The record of an epoch that ends after `number` steps."""
        return {
            "global_step": number,
            "epoch": epoch + 1,
            "lr": self._lr,
            "train_loss": self._loss / self._steps if self._steps else math.nan,
            "error": self._error / self._steps if self._steps else math.nan,
            "test_loss": scored.loss if scored else None,
            "accuracy": scored.top1 if scored else None,
            "accuracy_top5": scored.top5 if scored else None,
            "bytes": self._bytes,
            "raw_bytes": self._raw,
            "evaluation_bytes": scored.bytes if scored else {},
            "seconds": {**self._seconds, "evaluation": scored.seconds if scored else 0.0},
        }

    def state(self) -> dict[str, Any]:
        """The sums as plain JSON. NaN, where errors are not measured, is left out."""
        return {name.removeprefix("_"): value for name, value in vars(self).items() if value == value}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._error = float("nan")
        for name, value in state.items():
            setattr(self, f"_{name}", value)
