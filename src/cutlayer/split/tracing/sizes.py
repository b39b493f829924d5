"""Sizes in a traced graph: symbolic dimensions as arithmetic on tensors' shapes, and the checks on them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from cutlayer.errors import CutError

# By the names of sympy's classes: sympy is imported only when a model is traced by example.
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "Add": operator.add,
    "Mul": operator.mul,
    "Pow": operator.pow,
    "Max": max,
    "Min": min,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
}


def dimension(x: torch.Tensor, dim: int) -> int:
    """One size of a tensor. A function of its own, so that a graph can be searched for it."""
    return x.shape[dim]


def device_of(x: torch.Tensor) -> torch.device:
    """Where a tensor is. What forward makes there is made where the part's own inputs are."""
    return x.device


#: Takes the place of an expression in the nodes that ask for a device.
DEVICE = "device"


def write_size(graph: fx.Graph, expression: Any, symbols: Mapping[Any, fx.Node]) -> fx.Node | int:
    """Nodes that compute an expression of symbols; a plain number if there are none in it."""
    if expression.is_Integer:
        return int(expression)
    if expression in symbols:
        return symbols[expression]
    compute = _ARITHMETIC.get(expression.func.__name__)
    if compute is None or not expression.args:
        raise CutError(
            f"forward uses the size {expression}, and {expression.func.__name__} cannot be computed behind "
            "the cut. Compute that size inside a module that lies on one side of the cut."
        )
    written = [write_size(graph, argument, symbols) for argument in expression.args]
    total = written[0]
    for value in written[1:]:
        total = graph.call_function(compute, (total, value))
    return total


@dataclass
class SizeCheck:
    """What a trace has assumed of the sizes of the inputs, checked when a batch has sizes not seen before."""

    inputs: tuple[str, ...]
    shapes: tuple[tuple[Any, ...], ...]
    """Of each input: numbers for what is fixed, symbols for what may vary."""
    assumed: tuple[Any, ...]
    """Conditions on the symbols, on which forward has decided something."""
    _seen: set[tuple[Any, ...]] = field(default_factory=set)

    def __call__(self, inputs: tuple[Any, ...]) -> None:
        """Raise CutError if the parts were not made for inputs of these sizes."""
        given = tuple(tuple(x.shape) for x in inputs)
        if given in self._seen:
            return
        sizes: dict[Any, int] = {}
        for name, shape, found in zip(self.inputs, self.shapes, given, strict=True):
            fits = len(shape) == len(found)
            for expected, size in zip(shape, found, strict=False):
                known = sizes.setdefault(expected, size) if _is_symbol(expected) else int(expected)
                fits = fits and known == size
            if not fits:
                wanted = ", ".join("any" if _is_symbol(size) else str(size) for size in shape)
                raise CutError(
                    f"{name} has the shape {list(found)}, but the model was cut for [{wanted}], where equal "
                    "sizes stay equal. Cut it with an example of the shape that it is to take."
                )
        for condition in self.assumed:
            # A size of 1 is computed as any other is. Only what forward asked of it itself is checked.
            if condition.subs(sizes) == False:  # noqa: E712, sympy's own
                raise CutError(
                    f"the model takes another path for inputs of the shapes {[list(s) for s in given]}: it "
                    f"was cut where {condition}. Cut it with an example of such shapes."
                )
        self._seen.add(given)


def _is_symbol(value: Any) -> bool:
    return bool(getattr(value, "is_Symbol", False))
