"""The server's part in autograd: forward asks the server, backward brings its gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cutlayer.remote.calls import Calls
from cutlayer.split.tensors import Tensors, apply, floats, like, multiplied, tensors_of
from cutlayer.wire.messages.remote_loop import Outputs


@dataclass
class _Pass:
    """One batch on its way there and back. It holds no tensor of the graph, which would hold it in turn."""

    calls: Calls
    training: bool
    targets: Tensor | None
    inputs: Tensors
    """Placeholders in the form of the smashed data."""
    number: int = -1
    outputs: Tensors | None = None
    """Placeholders in the form of the outputs, or of the loss."""
    message: Outputs | None = None
    """With the gradient of the loss."""


def cross(calls: Calls, x: Tensors, targets: Tensor | None, *, training: bool) -> Tensors:
    """Outputs or loss of the server's part for a batch to train on."""
    batch = _Pass(calls, training, targets, _placeholders(x))
    # Without a tensor that wants a gradient, backward() would never come here.
    anchor = torch.empty(0, requires_grad=True)
    found = _Crossing.apply(batch, anchor, *tensors_of(x))  # type: ignore[no-untyped-call]
    if batch.outputs is None:
        raise RuntimeError("no answer")
    return like(batch.outputs, found)


class _Crossing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, batch: _Pass, anchor: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.batch = batch
        x = like(batch.inputs, tensors)
        answer = batch.calls.ask(x, batch.targets, training=batch.training, gradient=True)
        batch.number, batch.outputs = answer.number, _placeholders(answer.result)
        batch.message = None if batch.targets is None else answer.message
        outputs = tensors_of(answer.result)
        ctx.mark_non_differentiable(*(t for t in outputs if not t.is_floating_point()))
        return tuple(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        batch: _Pass = ctx.batch
        if batch.message is not None:
            scale = float(grads[0])
            found = batch.calls.input_gradient(batch.message, batch.inputs)
            batch.calls.backward_from_loss(batch.number, scale)
            if scale != 1:
                found = multiplied(found, scale)
        else:
            given = grads[0] if isinstance(batch.outputs, Tensor) else _of_floats(batch.outputs or {}, grads)
            back = batch.calls.backward(batch.number, given)
            found = batch.calls.input_gradient(back, batch.inputs)
        if isinstance(found, dict):
            return None, None, *(found.get(name) for name in batch.inputs)
        return None, None, found


def _of_floats(outputs: dict[str, Tensor], grads: tuple[Tensor, ...]) -> Tensors:
    wanted = floats(outputs)
    return {name: grad for name, grad in zip(outputs, grads, strict=True) if name in wanted}


def _placeholders(x: Tensors) -> Tensors:
    """Tensors of the same form that take no memory."""
    return apply(lambda t: torch.empty((), dtype=t.dtype, device=t.device).expand(t.shape), x)
