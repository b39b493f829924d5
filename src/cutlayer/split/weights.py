"""What both halves do with weights and their gradients: one vector of many, means over clients, updates.

Callers add clients to a mean in client order, never in order of arrival, so that the result does not depend
on the network.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from cutlayer.errors import CheckpointError

Weighting = Literal["clients", "samples"]


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """All elements in one float32 vector. Integers, such as batch counters, are converted, too."""
    if not tensors:
        return torch.empty(0)
    return torch.cat([t.detach().reshape(-1).to(torch.float32) for t in tensors])


def unflatten(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Pieces of a vector in the shapes and types of the given tensors; views where the type allows."""
    pieces = torch.split(vector, [t.numel() for t in like])
    return [
        (piece if t.is_floating_point() else piece.round()).view(t.shape).to(t.dtype)
        for piece, t in zip(pieces, like, strict=True)
    ]


def assign(targets: Sequence[Tensor], vector: Tensor) -> None:
    """Copy the pieces of a vector into the tensors."""
    with torch.no_grad():
        for target, piece in zip(targets, unflatten(vector, targets), strict=True):
            target.copy_(piece)


def device_of(*parts: nn.Module) -> torch.device:
    """Where a model's weights are; the CPU if it has none."""
    tensors = (t for part in parts for t in (*part.parameters(), *part.buffers()))
    return next((t.device for t in tensors), torch.device("cpu"))


def mean_weights(samples: Sequence[int], weighting: Weighting) -> list[float]:
    """The weight of each client in a mean: equal, as in the paper, or proportional to its number of samples.

    >>> mean_weights([30, 10], "samples")
    [0.75, 0.25]
    """
    if weighting == "samples":
        total = sum(samples)
        return [count / total for count in samples]
    return [1 / len(samples) for _ in samples]


def add_weighted(total: Tensor | None, vector: Tensor, weight: float) -> Tensor:
    """Add weight times vector to a running sum, in place; `total` is None before the first vector.

    A mean over clients is one call for each client. A single vector of weight 1 is returned unchanged, so a
    run with one client equals ordinary training bit for bit.
    """
    if total is None:
        return vector if weight == 1.0 else vector * weight
    return total.add_(vector, alpha=weight)


@dataclass(frozen=True)
class UpdateRule:
    """What both halves do alike, each with its own weights."""

    clip: float = 0.0
    """The largest norm of the gradient of a half's weights; 0: as it is."""
    accumulate: int = 1
    """How many steps' gradients are averaged for one update."""
    precision: torch.dtype = torch.float32
    """bfloat16: models compute under autocast. Weights and what crosses a cut stay float32."""

    def autocast(self, device: torch.device) -> torch.autocast:
        """Models compute inside."""
        return torch.autocast(device.type, torch.bfloat16, enabled=self.precision == torch.bfloat16)


class Updater:
    """Weights, their optimizer, and the gradients that wait for others."""

    def __init__(
        self, parameters: Sequence[nn.Parameter], optimizer: torch.optim.Optimizer | None, rule: UpdateRule
    ) -> None:
        self._parameters = parameters
        self._optimizer = optimizer
        self._rule = rule
        self._waiting: list[Tensor | None] = []
        self._count = 0

    def apply(self, gradients: Sequence[Tensor | None], lr: float) -> None:
        """One optimizer step with these gradients and those that wait, once there are enough of them."""
        if self._optimizer is None:
            return
        if self._rule.accumulate > 1:
            self._count += 1
            self._waiting = _sum(self._waiting or [None] * len(gradients), gradients)
            if self._count < self._rule.accumulate:
                return
            gradients = [None if g is None else g / self._rule.accumulate for g in self._waiting]
            self._waiting, self._count = [], 0
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        if self._rule.clip:
            torch.nn.utils.clip_grad_norm_(self._parameters, self._rule.clip)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()
        self._optimizer.zero_grad()

    def state(self) -> dict[str, Tensor]:
        """The gradients that wait, for a checkpoint; nothing if none do."""
        if not self._count:
            return {}
        waiting = {f"waiting.{i}": g for i, g in enumerate(self._waiting) if g is not None}
        return {**waiting, "waiting.count": torch.tensor(self._count)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what `state` gave."""
        self._count = int(state["waiting.count"]) if "waiting.count" in state else 0
        if not 0 <= self._count < max(2, self._rule.accumulate):
            raise CheckpointError(f"{self._count} gradients wait, of {self._rule.accumulate}")
        found = [state.get(f"waiting.{i}") for i in range(len(self._parameters))] if self._count else []
        self._waiting = [
            None if g is None else torch.empty_like(p).copy_(g)
            for g, p in zip(found, self._parameters, strict=False)
        ]


def _sum(before: Sequence[Tensor | None], new: Sequence[Tensor | None]) -> list[Tensor | None]:
    return [b if a is None else a.clone() if b is None else b + a for a, b in zip(new, before, strict=True)]
