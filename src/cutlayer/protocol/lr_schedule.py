"""The learning rate at a place in the run: a pure function, so that resuming needs no state of it."""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class LearningRate:
    """A schedule. The rate changes between epochs; in the linear warm-up it changes at each step."""

    lr: float
    epochs: int
    schedule: Literal["constant", "cosine", "steps", "every"] = "constant"
    milestones: tuple[int, ...] = ()
    gamma: float = 0.1
    period: int = 30
    warmup_epochs: int = 0

    def at(self, epoch: int, step: int, steps_per_epoch: int) -> float:
        """The learning rate of a step."""
        warmup = self.warmup_epochs * steps_per_epoch
        done = epoch * steps_per_epoch + step + 1
        rise = done / warmup if done <= warmup else 1.0
        return rise * self.lr * self._factor(epoch)

    def _factor(self, epoch: int) -> float:
        if self.schedule == "cosine":
            return 0.5 * (1 + math.cos(math.pi * epoch / self.epochs))
        if self.schedule == "steps":
            return float(self.gamma ** sum(epoch >= milestone for milestone in self.milestones))
        if self.schedule == "every":
            return float(self.gamma ** (epoch // self.period))
        return 1.0
