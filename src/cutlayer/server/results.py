"""What came of a step and of an evaluation."""

from dataclasses import dataclass, field
from typing import Any

from cutlayer.protocol.plan import Step


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
    raw_bytes: dict[str, int] = field(default_factory=dict)
    """What tensors at the cut, and what clients share, would have cost as float32 without headers."""
    bits: dict[str, float] = field(default_factory=dict)
    """Bits an element of each client's smashed data, by its number, header included; where clients choose."""
    bytes: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    simulated: float = 0.0

    def record(self) -> dict[str, Any]:
        """The step's record: plain JSON."""
        chosen = {"bits": self.bits} if self.bits else {}
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
            **chosen,
            "seconds": self.seconds,
            "simulated_seconds": self.simulated,
        }


@dataclass(frozen=True)
class Evaluation:
    """The model on the test set."""

    samples: int
    loss: float
    top1: float
    """Shares from 0 to 1."""
    top5: float
    bytes: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
