"""The server's part at work: forward, loss and backward for one request, as autograd would do it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from cutlayer.errors import ConfigError, NonFiniteError
from cutlayer.seeding import seeded
from cutlayer.split.tensors import (
    Tensors,
    apply,
    floats,
    gradients_for,
    like,
    main_output,
    samples_in,
    tensors_of,
)

LossFunction = Callable[[Tensor, Tensor], Tensor]
Gradients = list[Tensor | None]


@dataclass
class OpenBatch:
    """A batch between its forward and its backward."""

    samples: int
    loss: float | None
    gradients: Gradients | None
    """Those of the weights, where the loss is the server's: it needs no graph any more."""
    inputs: Tensors | None = None
    outputs: Tensors | None = None
    weights: Sequence[Tensor] = ()


@dataclass(frozen=True)
class Computed:
    """What a forward gave."""

    outputs: Tensors | None
    loss: float | None
    gradient: Tensors | None
    """Of the loss, at the inputs."""
    open: OpenBatch | None


class PartEngine:
    """Runs a module on what clients send. Nothing is left in it of a batch that is not finite."""

    def __init__(
        self,
        part: nn.Module,
        loss: LossFunction | None,
        *,
        autocast: torch.dtype | None = None,
    ) -> None:
        if not isinstance(part, nn.Module):
            raise ConfigError(f"the server's part must be a module, not a {type(part).__name__}")
        self.part = part
        self.loss = loss
        named = {name: p for name, p in part.named_parameters() if p.requires_grad}
        self.parameters = list(named.values())
        self._names = list(named)
        self._autocast = autocast
        any_tensor = next((t for t in (*part.parameters(), *part.buffers()) if t.is_floating_point()), None)
        self.device = torch.device("cpu") if any_tensor is None else any_tensor.device
        self._dtype = torch.float32 if any_tensor is None else any_tensor.dtype

    def forward(
        self, x: Tensors, targets: Tensor | None, *, training: bool, gradient: bool, seed: int
    ) -> Computed:
        """Outputs; or the loss and its gradient, where targets are given. Raises NonFiniteError."""
        x = apply(lambda tensor: self._received(tensor, gradient), x)
        samples, inputs = samples_in(x), tensors_of(floats(x))
        if self.part.training != training:
            self.part.train(training)
        weights: Sequence[Tensor] = self.parameters
        if gradient and targets is None:
            # Other batches may update the weights before the backward of this one, which needs those that
            # the forward used: autograd refuses weights that were changed in place.
            weights = [p.detach().clone().requires_grad_() for p in self.parameters]
        with self._undone_unless_finite(training), torch.set_grad_enabled(gradient):
            with seeded(seed, self.device), self._autocasting():
                outputs = self._run(x, weights)
                loss = None
                if targets is not None and self.loss is not None:
                    if isinstance(outputs, dict):
                        raise TypeError(f"a loss needs one tensor, and the part gives {', '.join(outputs)}")
                    loss = self.loss(outputs, targets.to(self.device))
            if loss is None:
                _finite("the outputs", tensors_of(floats(outputs)))
                kept = OpenBatch(samples, None, None, x, outputs, weights) if gradient else None
                return Computed(apply(Tensor.detach, outputs), None, None, kept)
            value = float(loss.detach())
            if not math.isfinite(value):
                raise NonFiniteError(f"the loss is {value}")
            if not gradient:
                return Computed(None, value, None, None)
            found = torch.autograd.grad(loss, [*inputs, *self.parameters], allow_unused=True)
            _finite("the gradients", found)
            own: Gradients = list(found[len(inputs) :])
            return Computed(None, value, _of_inputs(found, x), OpenBatch(samples, value, own))

    def backward(
        self, batch: OpenBatch, scale: float, gradient: Tensors | None
    ) -> tuple[Tensors | None, Gradients]:
        """The gradient of the inputs, unless the forward gave it, and those of the weights."""
        if batch.gradients is not None:
            if scale != 1:
                scaled: Gradients = [None if g is None else g * scale for g in batch.gradients]
                _finite("the gradients", scaled)
                return None, scaled
            return None, batch.gradients
        if batch.inputs is None or batch.outputs is None or gradient is None:
            raise RuntimeError("a batch without loss needs the gradient of its outputs")
        outputs, given = gradients_for(batch.outputs, gradient)
        inputs = tensors_of(floats(batch.inputs))
        found = torch.autograd.grad(
            outputs,
            [*inputs, *batch.weights],
            [grad.to(self.device, output.dtype) for output, grad in zip(outputs, given, strict=True)],
            allow_unused=True,
        )
        _finite("the gradients", found)
        return _of_inputs(found, batch.inputs), list(found[len(inputs) :])

    @torch.no_grad()
    def accumulate(self, gradients: Gradients, weight: float = 1.0) -> None:
        """Add to `.grad`, as autograd does."""
        for parameter, new in zip(self.parameters, gradients, strict=True):
            if new is None:
                continue
            if parameter.grad is None:
                parameter.grad = new * weight if weight != 1 else new.clone()
            else:
                parameter.grad.add_(new, alpha=weight)

    def _received(self, tensor: Tensor, gradient: bool) -> Tensor:
        if not tensor.is_floating_point():
            return tensor.to(self.device)
        return tensor.to(self.device, self._dtype).requires_grad_(gradient)

    def _run(self, x: Tensors, weights: Sequence[Tensor]) -> Tensors:
        if weights is self.parameters:
            outputs = self.part(x)
        else:
            outputs = functional_call(self.part, dict(zip(self._names, weights, strict=True)), (x,))
        # Several tensors at the second cut of a U-shape; an object with logits is a whole model's output.
        several = type(outputs) is dict and outputs and all(isinstance(t, Tensor) for t in outputs.values())
        return outputs if several else main_output(outputs)

    def _autocasting(self) -> torch.autocast:
        return torch.autocast(self.device.type, self._autocast, enabled=self._autocast is not None)

    @contextmanager
    def _undone_unless_finite(self, training: bool) -> Iterator[None]:
        """Batch norm takes nothing from a batch that is refused."""
        before = [buffer.clone() for buffer in self.part.buffers()] if training else []
        try:
            yield
        except Exception:
            with torch.no_grad():
                for buffer, value in zip(self.part.buffers(), before, strict=False):
                    buffer.copy_(value)
            raise


def _finite(what: str, tensors: Sequence[Tensor | None]) -> None:
    for tensor in tensors:
        if tensor is not None and tensor.numel():
            # One pass and no further tensor; NaN is both the least and the greatest.
            low, high = torch.aminmax(tensor.detach())
            if not (math.isfinite(low) and math.isfinite(high)):
                raise NonFiniteError(f"{what} are not finite")


def _of_inputs(gradients: Sequence[Tensor | None], x: Tensors) -> Tensors:
    """The gradients of the inputs, which come first, in the form of those that have some."""
    inputs = tensors_of(floats(x))
    found = zip(gradients[: len(inputs)], inputs, strict=True)
    return like(floats(x), [torch.zeros_like(t) if gradient is None else gradient for gradient, t in found])
