"""What came of a step, of an evaluation and of an epoch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cutlayer.protocol.plan import Step
from cutlayer.tasks.metric import LOSS, Metric


@dataclass(slots=True)
class StepResult:
    """One training step."""

    step: Step
    loss: float
    """The mean over clients."""
    losses: list[float]
    """Each taking client's own, in client order."""
    error: float
    """Relative squared compression error of the smashed data; NaN if it was not measured."""
    errors: list[float] = field(default_factory=list)
    """Each client's own."""
    raw_bytes: dict[str, int] = field(default_factory=dict)
    """What tensors at the cut, and what clients share, would have cost as float32 without headers."""
    bits: dict[str, float] = field(default_factory=dict)
    """Bits an element of each client's smashed data, by its number, header included; where clients choose."""
    bytes: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    simulated: float = 0.0
    ages: list[int] | None = None
    """Mode async: how many updates old each client's gradients were, in the order of their arrival."""
    discarded: int = 0
    """Mode async: how many answers were too old to be used."""

    def record(self) -> dict[str, Any]:
        """The step's record: plain JSON."""
        further: dict[str, Any] = {"bits": self.bits} if self.bits else {}
        if self.ages is not None:
            further |= {"staleness": self.ages, "discarded": self.discarded}
        return {
            "global_step": self.step.number + 1,
            "epoch": self.step.epoch + 1,
            "step": self.step.step + 1,
            "clients": len(self.step.clients),
            "samples": sum(self.step.samples),
            "lr": self.step.lr,
            "loss": self.loss,
            "error": self.error,
            "bytes": self.bytes,
            "raw_bytes": self.raw_bytes,
            **further,
            "seconds": self.seconds,
            "simulated_seconds": self.simulated,
        }


@dataclass(frozen=True)
class Evaluation:
    """The model on the test set."""

    samples: int
    loss: float
    metrics: dict[str, float] = field(default_factory=dict)
    """The task's metrics, each under its name."""
    bytes: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def value(self, metric: Metric) -> float:
        """The value of a metric."""
        return self.loss if metric.name == LOSS else self.metrics[metric.name]

    @staticmethod
    def parse(found: Mapping[str, Any]) -> "Evaluation":
        """An evaluation from a checkpoint. Earlier releases knew classification only."""
        fields = dict(found)
        if "top1" in fields:
            fields["metrics"] = {"accuracy": fields.pop("top1"), "accuracy_top5": fields.pop("top5")}
        return Evaluation(**fields)


class EpochSums:
    """Sums over the steps of an epoch, kept in checkpoints so that resuming changes no record."""

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

    def record(
        self, epoch: int, number: int, scored: Evaluation | None, metrics: Sequence[Metric]
    ) -> dict[str, Any]:
        """The record of an epoch that ends after `number` steps; metrics stand under their names."""
        return {
            "global_step": number,
            "epoch": epoch + 1,
            "lr": self._lr,
            "train_loss": self._loss / self._steps if self._steps else math.nan,
            "error": self._error / self._steps if self._steps else math.nan,
            LOSS: scored.loss if scored else None,
            **{metric.name: scored.value(metric) if scored else None for metric in metrics},
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
