"""How gradients become an update of weights: in which precision, clipped, and how many of them at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cutlayer.errors import CheckpointError


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
