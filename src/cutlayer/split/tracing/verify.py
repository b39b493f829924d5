"""Check that the parts of a model, traced by running it, compute what the whole model computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from cutlayer.errors import CutError
from cutlayer.seeding import undisturbed
from cutlayer.split.tracing.examples import Example
from cutlayer.split.tracing.symbolic import set_mode, unchanged


def verify(model: nn.Module, parts: Sequence[nn.Module], example: Example) -> None:
    """Run both in evaluation mode on a batch of one and a batch of two samples, and compare.

    The trace was made without values. A path that forward takes by the size 1, or by anything else that the
    trace could not see, shows here.
    """
    tensors = [*model.parameters(), *model.buffers(), *example.tensors.values()]
    if any(tensor.is_meta for tensor in tensors):
        return  # a model without values computes nothing
    modes = [(module, module.training) for part in parts for module in part.modules()]
    with undisturbed(), unchanged(model), torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            set_mode(model, False)
            for part in parts:
                part.eval()
            for samples in (1, 2):
                inputs = {name: _batch(tensor, samples) for name, tensor in example.tensors.items()}
                torch.default_generator.manual_seed(0)  # for what draws in evaluation, too
                expected = pytree.tree_leaves(example.call(model, inputs))
                torch.default_generator.manual_seed(0)
                value: Any = None
                for part in parts:
                    value = part(**inputs) if value is None else part(value)
                _compare(pytree.tree_leaves(value), expected)
        finally:
            for module, training in modes:
                module.training = training


def _batch(tensor: Tensor, samples: int) -> Tensor:
    repeated = torch.cat([tensor] * (samples if len(tensor) < samples else 1))
    return repeated[:samples].clone()


def _compare(found: list[Any], expected: list[Any]) -> None:
    same = len(found) == len(expected) and all(
        torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True) if isinstance(b, Tensor) else a == b
        for a, b in zip(found, expected, strict=False)
    )
    if not same:
        raise CutError(
            "the parts do not compute what the whole model does on the example: its forward keeps something "
            "from call to call, or decides by what a trace cannot see. Cut elsewhere, or move that into a "
            "module of its own."
        )
