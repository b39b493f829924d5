"""What `cutlayer.train` gives back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from cutlayer.errors import CheckpointError
from cutlayer.server.results import Evaluation
from cutlayer.tasks import Metric


@dataclass(frozen=True)
class Result:
    """One run: its trained model, its figures and its records."""

    trained: nn.Module | None
    """The whole trained model: the mean of the clients' halves, and the server's. In evaluation mode.

    None over the network with a separate aggregator, which alone has the clients' weights.
    """
    steps: int
    evaluation: Evaluation | None
    """The last one."""
    metric: Metric
    """The task's main metric, by which checkpoints are compared."""
    best: float
    """Its best value; NaN without an evaluation."""
    best_step: int
    bytes: dict[str, int]
    """All training traffic, by direction and kind."""
    seconds: float
    simulated_seconds: float | None
    records: list[dict[str, Any]]
    """Of all steps and epochs, as in `records.jsonl`."""
    stopped: bool
    """Whether a callback ended the run before its last step."""
    directory: Path | None
    """Where the run is, to be resumed, loaded or shown; None if it was not kept."""

    @property
    def model(self) -> nn.Module:
        """See `trained`, which it is."""
        if self.trained is None:
            raise CheckpointError(
                "the clients' weights are with the aggregator, and not here: see its directory's checkpoints"
            )
        return self.trained

    @property
    def accuracy(self) -> float | None:
        """Of the last evaluation, where the task has it."""
        return self.metrics.get("accuracy")

    @property
    def metrics(self) -> dict[str, float]:
        """All metrics of the task at the last evaluation, by name; empty without one."""
        return {} if self.evaluation is None else self.evaluation.metrics

    @property
    def loss(self) -> float | None:
        """On the test set, at the last evaluation."""
        return None if self.evaluation is None else self.evaluation.loss
