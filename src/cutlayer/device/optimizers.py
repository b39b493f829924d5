"""The optimizers of a run in NumPy, with the states that PyTorch's have: SGD and AdamW."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from cutlayer.device.settings import RunSettings
from cutlayer.errors import CheckpointError, ConfigError

Arrays = dict[str, Any]
#: Names that a half can be exported with.
OPTIMIZERS = ("sgd", "adamw")


class Optimizer(Protocol):
    """Updates weights in place, and remembers what the next update needs."""

    def step(self, weights: Sequence[Any], gradients: Sequence[Any | None], lr: float) -> None:
        """One update. A weight without a gradient stays as it is."""

    def state(self) -> Arrays:
        """What it remembers: `{number of the weight}.{name}`, as in a checkpoint."""

    def restore(self, state: Mapping[str, Any], weights: Sequence[Any]) -> None:
        """Continue from what `state` gave."""


class _Remembers:
    """State of each weight by name; the names and their shapes are those of PyTorch."""

    names: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._state: dict[int, Arrays] = {}

    def state(self) -> Arrays:
        """See `Optimizer.state`."""
        return {f"{i}.{name}": value for i, known in self._state.items() for name, value in known.items()}

    def restore(self, state: Mapping[str, Any], weights: Sequence[Any]) -> None:
        """See `Optimizer.restore`."""
        self._state = {}
        for key, value in state.items():
            number, _, name = key.partition(".")
            if not number.isdigit() or int(number) >= len(weights) or name not in self.names:
                raise CheckpointError(
                    f"the checkpoint has an optimizer's {key[:80]!r}, which is not known here"
                )
            expected = () if name == "step" else weights[int(number)].shape
            if value.shape != expected or value.dtype != np.float32:
                raise CheckpointError(f"the optimizer's {key} has another shape or type in the checkpoint")
            self._state.setdefault(int(number), {})[name] = np.array(value, np.float32)


class Sgd(_Remembers):
    """As torch.optim.SGD."""

    names = ("momentum_buffer",)

    def __init__(self, momentum: float, weight_decay: float, nesterov: bool) -> None:
        super().__init__()
        self.momentum, self.weight_decay, self.nesterov = momentum, weight_decay, nesterov

    def step(self, weights: Sequence[Any], gradients: Sequence[Any | None], lr: float) -> None:
        """See `Optimizer.step`."""
        for i, (weight, gradient) in enumerate(zip(weights, gradients, strict=True)):
            if gradient is None:
                continue
            change = gradient + np.float32(self.weight_decay) * weight if self.weight_decay else gradient
            if self.momentum:
                known = self._state.get(i)
                if known is None:
                    self._state[i] = known = {"momentum_buffer": np.array(change, np.float32)}
                else:
                    known["momentum_buffer"] *= np.float32(self.momentum)
                    known["momentum_buffer"] += change
                speed = known["momentum_buffer"]
                change = change + np.float32(self.momentum) * speed if self.nesterov else speed
            weight -= np.float32(lr) * change


class AdamW(_Remembers):
    """As torch.optim.AdamW with its usual coefficients."""

    names = ("step", "exp_avg", "exp_avg_sq")
    betas, eps = (0.9, 0.999), 1e-8

    def __init__(self, weight_decay: float) -> None:
        super().__init__()
        self.weight_decay = weight_decay

    def step(self, weights: Sequence[Any], gradients: Sequence[Any | None], lr: float) -> None:
        """See `Optimizer.step`."""
        first, second = self.betas
        for i, (weight, gradient) in enumerate(zip(weights, gradients, strict=True)):
            if gradient is None:
                continue
            known = self._state.setdefault(
                i,
                {
                    "step": np.zeros((), np.float32),
                    "exp_avg": np.zeros_like(weight),
                    "exp_avg_sq": np.zeros_like(weight),
                },
            )
            known["step"] = np.asarray(known["step"] + 1, np.float32)
            weight *= np.float32(1 - lr * self.weight_decay)
            mean, square, steps = known["exp_avg"], known["exp_avg_sq"], float(known["step"])
            mean += np.float32(1 - first) * (gradient - mean)
            square *= np.float32(second)
            square += np.float32(1 - second) * gradient * gradient
            size = np.float32(lr / (1 - first**steps))
            scale = np.sqrt(square) / np.float32((1 - second**steps) ** 0.5) + np.float32(self.eps)
            weight -= size * mean / scale


def make_optimizer(run: RunSettings) -> Sgd | AdamW:
    """The optimizer of a run's settings."""
    if run.optimizer == "sgd":
        return Sgd(run.momentum, run.weight_decay, run.nesterov)
    if run.optimizer == "adamw":
        return AdamW(run.weight_decay)
    raise ConfigError(
        f"the optimizer {run.optimizer!r} needs PyTorch; a run with ONNX halves "
        f"uses one of {', '.join(OPTIMIZERS)}"
    )
