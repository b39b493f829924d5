"""What comes of a run: how it stands after each epoch, as its checkpoints keep it, and its result."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cutlayer.server.results import EpochSums, Evaluation
from cutlayer.tasks import Metric


@dataclass
class Standing:
    """How far a run has come: the sums of its epoch, its last evaluation and its best one."""

    metric: Metric
    """The task's main metric, by which checkpoints are compared."""
    sums: EpochSums = field(default_factory=EpochSums)
    scored: Evaluation | None = None
    """The last evaluation."""
    best: float = math.nan
    """The best value of the metric; NaN without an evaluation."""
    best_step: int = 0
    """The step at which it was reached; 0 without an evaluation."""

    def begin_epoch(self) -> None:
        """The sums begin anew."""
        self.sums = EpochSums()

    def evaluated(self, scored: Evaluation, number: int) -> None:
        """Take in an evaluation after `number` steps."""
        self.scored = scored
        value = scored.value(self.metric)
        if not self.best_step or self.metric.better(value, self.best):
            self.best, self.best_step = value, number

    def state(self) -> dict[str, Any]:
        """Plain JSON for a checkpoint."""
        return {
            "sums": self.sums.state(),
            "best": (self.best, self.best_step) if self.best_step else None,
            "scored": dataclasses.asdict(self.scored) if self.scored else None,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` gave."""
        self.sums.restore(state["sums"])
        best, scored = state["best"], state["scored"]
        self.best, self.best_step = (float(best[0]), int(best[1])) if best else (math.nan, 0)
        self.scored = Evaluation.parse(scored) if scored else None


@dataclass(frozen=True)
class Result:
    """One run, complete."""

    directory: Path
    epochs: int
    steps: int
    scored: Evaluation | None
    """The evaluation after the last epoch."""
    metric: Metric
    """The task's main metric, by which checkpoints are compared."""
    best: float
    """Its best value; NaN without an evaluation."""
    best_step: int
    bytes: dict[str, int]
    """All training traffic, by direction and kind."""
    seconds: float
    simulated_seconds: float | None
    """What the run would have taken on the configured link, or with the configured speeds; None without."""
    stopped: bool = False
    """Whether it was stopped before its last step."""
