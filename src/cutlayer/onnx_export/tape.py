"""The forward pass as a graph, recorded so that its vector-Jacobian product (VJP) can be made of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cutlayer.errors import ModelError
from cutlayer.onnx_export.graph import Graph, Shape, Value

Names = Sequence[str | None]
#: Gradients of a rule's inputs from the gradient of its output, as nodes of the graph of the backward pass.
Backward = Callable[[Graph, str], Names]


class Tape:
    """The forward pass as a graph, and what the backward pass needs to know of it."""

    def __init__(self) -> None:
        self.graph = Graph("f")
        self.steps: list[tuple[Value, Sequence[Value | None], Backward]] = []

    def record(
        self, name: str, shape: Shape, inputs: Sequence[Value | None], backward: Backward | None, **other: Any
    ) -> Value:
        """A value that a rule made of others; `backward` None if no gradient flows through it."""
        trained = backward is not None and any(x is not None and x.trained for x in inputs)
        value = Value(name, shape, trained, **other)
        if trained and backward is not None:
            self.steps.append((value, inputs, backward))
        return value


def gradients(
    tape: Tape, output: Value, gradient: str, weights: Sequence[Value]
) -> tuple[Graph, dict[str, str]]:
    """The graph of the VJP, and the name of the gradient of each weight that has one."""
    graph = Graph("b")
    known: dict[str, str] = {output.name: gradient} if output.trained else {}
    for value, inputs, backward in reversed(tape.steps):
        if value.name not in known:
            continue
        for x, found in zip(inputs, backward(graph, known.pop(value.name)), strict=True):
            if x is not None and x.trained and found is not None:
                known[x.name] = graph.add("Add", [known[x.name], found]) if x.name in known else found
    return graph, {w.name: known[w.name] for w in weights if w.name in known}


def cannot(what: str, why: str = "has no rule") -> ModelError:
    """The error for an operator that cannot be exported for training."""
    return ModelError(
        f"{what} {why}, so this half cannot be exported for training without PyTorch; cut the model "
        "before it, or let this client use PyTorch"
    )


def unbroadcast(graph: Graph, gradient: str, of: Shape, to: Shape) -> str:
    """Sum a gradient of shape `of` over the axes along which a value of shape `to` was repeated."""
    extra = len(of) - len(to)
    axes = [i for i, n in enumerate(of) if i < extra or (to[i - extra] == 1 and n != 1)]
    summed = graph.reduce("ReduceSum", gradient, axes) if axes else gradient
    if not extra:
        return summed
    name: str = graph.add("Squeeze", [summed, graph.indices(*range(extra))])
    return name


def operand(tape: Tape, x: Any) -> Value:
    """A value, or a Python number as one."""
    return x if isinstance(x, Value) else Value(tape.graph.constant(x), ())
