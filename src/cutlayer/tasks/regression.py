"""Regression: targets are floats; squared, absolute or Huber loss; MSE, MAE and R²."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from cutlayer.errors import TaskError
from cutlayer.tasks.base import Floats, Target, Task, tensor_of
from cutlayer.tasks.metric import Metric

# With more outputs than this, R² is that of all of them together, not the mean over outputs.
_MOST_OUTPUTS = 64


@dataclass(frozen=True)
class Regression(Task):
    """Targets of that shape, as floats. They travel as dense frames of float32.

    The model learns (target - shift) / scale. Metrics are in the units of the targets.
    """

    name: ClassVar[str] = "regression"
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("mse", higher=False),
        Metric("mae", higher=False),
        Metric("r2"),
    )

    shape: tuple[int, ...] = ()
    objective: Literal["mse", "l1", "huber"] = "mse"
    """What is minimised. The setting is `task.loss`."""
    delta: float = 1.0
    """huber: errors beyond this count linearly."""
    shift: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        """Check the options."""
        if self.objective not in ("mse", "l1", "huber"):
            raise TaskError(f"task.loss is {self.objective!r}; a regression has mse, l1 or huber")
        for name, value in (("delta", self.delta), ("scale", self.scale)):
            if not (math.isfinite(value) and value > 0):
                raise TaskError(f"task.{name} is {value}; expected a positive number")
        if not math.isfinite(self.shift):
            raise TaskError(f"task.shift is {self.shift}; expected a number")

    @classmethod
    def of(cls, target: Target, *, loss: str = "mse", **options: Any) -> Self:
        """The task for such targets."""
        if target.kind != "floats":
            raise TaskError(
                f"regression needs floats; the data have {target.describe()}. Give targets as float32"
            )
        return cls(target.shape, loss, **options)  # type: ignore[arg-type]

    @cached_property
    def targets(self) -> Floats:  # type: ignore[override]
        """See `Task.targets`."""
        return Floats(self.shape)

    @cached_property
    def sum_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """See `Task.sum_names`: the last three for each output, or for all together."""
        names = ("squared errors", "targets", "squared targets")
        return ("loss", "absolute errors", *(name for name in names for _ in range(self._groups)))

    @property
    def _groups(self) -> int:
        outputs = math.prod(self.shape)
        return outputs if outputs <= _MOST_OUTPUTS else 1

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """See `Task.loss`. The mean over samples and outputs."""
        found = _like(outputs, targets)
        return self._loss(found, self._scaled(targets))

    def sums(self, outputs: Any, targets: Tensor) -> Sequence[float]:
        """See `Task.sums`."""
        found = _like(outputs, targets)
        loss = float(self._loss(found, self._scaled(targets))) * len(targets)
        wanted = targets.double().reshape(len(targets), -1)
        error = found.double().reshape(len(targets), -1) * self.scale + self.shift - wanted
        if wanted.shape[1] != self._groups:
            wanted, error = wanted.reshape(-1, 1), error.reshape(-1, 1)
        by_output = torch.stack([error.square().sum(0), wanted.sum(0), wanted.square().sum(0)])
        return [loss, float(error.abs().sum()), *by_output.reshape(-1).tolist()]

    def results(self, sums: Sequence[float], samples: int) -> dict[str, float]:
        """See `Task.results`. R² is the mean over outputs; an output that never varies has none."""
        groups = self._groups
        values = samples * math.prod(self.shape)
        each = values / groups
        rows = [sums[2 + i * groups : 2 + (i + 1) * groups] for i in range(3)]
        shares = []
        for squared_error, total, squares in zip(*rows, strict=True):
            variation = squares - total * total / each
            if variation > 0:
                shares.append(1 - squared_error / variation)
        return {
            "loss": sums[0] / samples,
            "mse": sum(rows[0]) / values,
            "mae": sums[1] / values,
            "r2": sum(shares) / len(shares) if shares else math.nan,
        }

    def impossible(self, sums: Sequence[float], samples: int) -> str | None:
        """See `Task.impossible`."""
        groups = self._groups
        errors, squares = sums[2 : 2 + groups], sums[2 + 2 * groups :]
        if min(sums[0], sums[1], *errors, *squares) < 0:
            return "a sum of squares or of absolute errors is negative"
        return None

    def _loss(self, found: Tensor, wanted: Tensor) -> Tensor:
        if self.objective == "l1":
            return F.l1_loss(found, wanted)
        if self.objective == "huber":
            return F.huber_loss(found, wanted, delta=self.delta)
        return F.mse_loss(found, wanted)

    def _scaled(self, targets: Tensor) -> Tensor:
        if (self.shift, self.scale) == (0.0, 1.0):
            return targets
        return (targets - self.shift) / self.scale


def _like(outputs: Any, targets: Tensor) -> Tensor:
    """The outputs in the shape of the targets: [N, 1] and [N] are the same to a person."""
    found = tensor_of(outputs)
    if found.shape != targets.shape:
        if found.numel() != targets.numel() or len(found) != len(targets):
            raise TaskError(
                f"the model gives outputs of shape {list(found.shape)} for targets of shape "
                f"{list(targets.shape)}; change the model's last layer, or give class numbers as integers"
            )
        found = found.reshape(targets.shape)
    return found
