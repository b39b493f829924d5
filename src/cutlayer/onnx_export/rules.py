"""Operators of PyTorch as ONNX, each with its vector-Jacobian product (VJP).

A rule adds nodes for the forward pass and registers how gradients flow back. `tape.cannot` names what has no
rule. Rules for layers are in `layer_rules` and `norm_rules`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from cutlayer.onnx_export.graph import Graph, Shape, Value
from cutlayer.onnx_export.tape import Names, Tape, cannot, operand, unbroadcast


def _binary(operator: str) -> Callable[..., Value]:
    def rule(tape: Tape, shape: Shape, x: Any, y: Any, *, alpha: float = 1, **_: Any) -> Value:
        a, b = operand(tape, x), operand(tape, y)
        if alpha != 1:
            b = multiply(tape, b.shape, b, alpha)
        name = tape.graph.add(operator, [a.name, b.name])

        def backward(g: Graph, dy: str) -> Names:
            da: str | None
            db: str | None
            if operator == "Add":
                da, db = dy, dy
            elif operator == "Sub":
                da, db = dy, g.add("Neg", [dy])
            elif operator == "Mul":
                da, db = (
                    g.add("Mul", [dy, other.name]) if own.trained else None for own, other in ((a, b), (b, a))
                )
            else:
                da = g.add("Div", [dy, b.name])
                db = g.add("Neg", [g.add("Div", [g.add("Mul", [dy, name]), b.name])]) if b.trained else None
            return [
                unbroadcast(g, d, shape, v.shape) if d is not None and v.trained else None
                for d, v in ((da, a), (db, b))
            ]

        return tape.record(name, shape, [a, b], backward)

    return rule


add, multiply = _binary("Add"), _binary("Mul")


def _unary(operator: str, derivative: Callable[[Graph, str, str], str]) -> Callable[..., Value]:
    """An operator on each element; its derivative from input and output."""

    def rule(tape: Tape, shape: Shape, x: Value, **_: Any) -> Value:
        y = tape.graph.add(operator, [x.name])
        return tape.record(y, shape, [x], lambda g, dy: [g.add("Mul", [dy, derivative(g, x.name, y)])])

    return rule


def _positive(g: Graph, y: str) -> str:
    name: str = g.add("Cast", [g.add("Greater", [y, g.constant(0.0)])], to=1)
    return name


def _sigmoid_slope(g: Graph, y: str) -> str:
    name: str = g.add("Mul", [y, g.add("Sub", [g.constant(1.0), y])])
    return name


def _silu(tape: Tape, shape: Shape, x: Value) -> Value:
    return multiply(tape, shape, x, RULES["aten.sigmoid.default"](tape, shape, x))


def _gelu(tape: Tape, shape: Shape, x: Value, *, approximate: str = "none") -> Value:
    if approximate != "none":
        raise cannot(f"gelu with approximate={approximate!r}")
    graph = tape.graph
    half = graph.add("Erf", [graph.add("Mul", [x.name, graph.constant(math.sqrt(0.5))])])
    phi = graph.add("Mul", [graph.add("Add", [half, graph.constant(1.0)]), graph.constant(0.5)])
    y = graph.add("Mul", [x.name, phi])

    def backward(g: Graph, dy: str) -> Names:
        square = g.add("Mul", [g.add("Mul", [x.name, x.name]), g.constant(-0.5)])
        density = g.add("Mul", [g.add("Exp", [square]), g.constant(1 / math.sqrt(2 * math.pi))])
        return [g.add("Mul", [dy, g.add("Add", [phi, g.add("Mul", [x.name, density])])])]

    return tape.record(y, shape, [x], backward)


def _leaky_relu(tape: Tape, shape: Shape, x: Value, slope: float = 0.01) -> Value:
    y = tape.graph.add("LeakyRelu", [x.name], alpha=float(slope))

    def backward(g: Graph, dy: str) -> Names:
        positive = _positive(g, x.name)
        factor = g.add("Add", [g.add("Mul", [positive, g.constant(1 - slope)]), g.constant(slope)])
        return [g.add("Mul", [dy, factor])]

    return tape.record(y, shape, [x], backward)


def _clamp(tape: Tape, shape: Shape, x: Value, low: Any = None, high: Any = None) -> Value:
    graph = tape.graph
    bounds = ["" if bound is None else graph.constant(float(bound)) for bound in (low, high)]
    y = graph.add("Clip", [x.name, *bounds])

    def backward(g: Graph, dy: str) -> Names:
        for bound, operator in ((low, "Greater"), (high, "Less")):
            if bound is not None:
                inside = g.add(operator, [x.name, g.constant(float(bound))])
                dy = g.add("Mul", [dy, g.add("Cast", [inside], to=1)])
        return [dy]

    return tape.record(y, shape, [x], backward)


def _matmul(tape: Tape, shape: Shape, x: Value, y: Value) -> Value:
    name = tape.graph.add("MatMul", [x.name, y.name])

    def backward(g: Graph, dy: str) -> Names:
        turned = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]

        def turn(value: str) -> str:
            found: str = g.add("Transpose", [value], perm=turned)
            return found

        dx = g.add("MatMul", [dy, turn(y.name)]) if x.trained else None
        return [dx, g.add("MatMul", [turn(x.name), dy]) if y.trained else None]

    return tape.record(name, shape, [x, y], backward)


def _addmm(
    tape: Tape, shape: Shape, bias: Value, x: Value, y: Value, *, beta: float = 1, alpha: float = 1
) -> Value:
    if (beta, alpha) != (1, 1):
        raise cannot("addmm with factors")
    return add(tape, shape, _matmul(tape, shape, x, y), bias)


def _linear(tape: Tape, shape: Shape, x: Value, weight: Value, bias: Value | None = None) -> Value:
    if len(x.shape) != 2:
        raise cannot("a linear layer on more than two dimensions")
    y = _matmul(tape, shape, x, _permute(tape, weight.shape[::-1], weight, [1, 0]))
    return y if bias is None else add(tape, shape, y, bias)


def _reshape(tape: Tape, shape: Shape, x: Value, *_: Any) -> Value:
    if sum(size is None for size in shape) > 1 or (None in x.shape) != (None in shape):
        raise cannot(f"a reshape from {list(x.shape)} to {list(shape)}", "mixes samples")
    target = tape.graph.indices(*(-1 if size is None else size for size in shape))
    y = tape.graph.add("Reshape", [x.name, target])

    def backward(g: Graph, dy: str) -> Names:
        return [g.add("Reshape", [dy, g.indices(*(-1 if size is None else size for size in x.shape))])]

    return tape.record(y, shape, [x], backward)


def _permute(tape: Tape, shape: Shape, x: Value, order: Sequence[int]) -> Value:
    order = [axis % len(order) for axis in order]
    y = tape.graph.add("Transpose", [x.name], perm=order)
    inverse = [order.index(axis) for axis in range(len(order))]
    return tape.record(y, shape, [x], lambda g, dy: [g.add("Transpose", [dy], perm=inverse)])


def _transpose(tape: Tape, shape: Shape, x: Value, a: int = 0, b: int = 1) -> Value:
    order = list(range(len(x.shape)))
    order[a], order[b] = order[b], order[a]
    return _permute(tape, shape, x, order) if len(order) > 1 else x


def _cat(tape: Tape, shape: Shape, parts: Sequence[Value], axis: int = 0) -> Value:
    axis %= len(shape)
    sizes = [part.shape[axis] for part in parts]
    if axis == 0 or None in sizes:
        raise cannot("a concatenation of samples")
    y = tape.graph.add("Concat", [part.name for part in parts], axis=axis)

    def backward(g: Graph, dy: str) -> Names:
        found: list[str] = g.add("Split", [dy, g.indices(*sizes)], len(parts), axis=axis)  # type: ignore[arg-type]
        return found

    return tape.record(y, shape, list(parts), backward)


def _same(tape: Tape, shape: Shape, x: Value, *_: Any, **__: Any) -> Value:
    return x


def _mean(tape: Tape, shape: Shape, x: Value, axes: Sequence[int], keep: bool = False, **_: Any) -> Value:
    axes = [axis % len(x.shape) for axis in axes]
    sizes = [x.shape[axis] for axis in axes]
    if None in sizes:
        raise cannot("a mean over samples")
    y = tape.graph.reduce("ReduceMean", x.name, axes, keep)
    scale = 1 / math.prod(sizes)  # type: ignore[arg-type]

    def backward(g: Graph, dy: str) -> Names:
        wide = dy if keep else g.add("Unsqueeze", [dy, g.indices(*axes)])
        return [g.add("Mul", [g.add("Expand", [wide, g.add("Shape", [x.name])]), g.constant(scale)])]

    return tape.record(y, shape, [x], backward)


RULES: dict[str, Callable[..., Any]] = {
    "aten.add.Tensor": add,
    "aten.add.Scalar": add,
    "aten.sub.Tensor": _binary("Sub"),
    "aten.sub.Scalar": _binary("Sub"),
    "aten.mul.Tensor": multiply,
    "aten.mul.Scalar": multiply,
    "aten.div.Tensor": _binary("Div"),
    "aten.div.Scalar": _binary("Div"),
    "aten.relu.default": _unary("Relu", lambda g, x, y: _positive(g, y)),
    "aten.sigmoid.default": _unary("Sigmoid", lambda g, x, y: _sigmoid_slope(g, y)),
    "aten.tanh.default": _unary(
        "Tanh", lambda g, x, y: g.add("Sub", [g.constant(1.0), g.add("Mul", [y, y])])
    ),
    "aten.exp.default": _unary("Exp", lambda g, x, y: y),
    "aten.neg.default": _unary("Neg", lambda g, x, y: g.constant(-1.0)),
    "aten.silu.default": _silu,
    "aten.gelu.default": _gelu,
    "aten.leaky_relu.default": _leaky_relu,
    "aten.clamp.default": _clamp,
    "aten.hardtanh.default": lambda tape, shape, x, low=-1.0, high=1.0: _clamp(tape, shape, x, low, high),
    "aten.mm.default": _matmul,
    "aten.addmm.default": _addmm,
    "aten.linear.default": _linear,
    "aten.view.default": _reshape,
    "aten._unsafe_view.default": _reshape,
    "aten.reshape.default": _reshape,
    "aten.flatten.using_ints": _reshape,
    "aten.squeeze.dims": _reshape,
    "aten.unsqueeze.default": _reshape,
    "aten.permute.default": _permute,
    "aten.transpose.int": _transpose,
    "aten.t.default": _transpose,
    "aten.cat.default": _cat,
    "aten.mean.dim": _mean,
    "aten.clone.default": _same,
    "aten.alias.default": _same,
    "aten.detach.default": lambda tape, shape, x: tape.record(x.name, shape, [x], None),
    "aten.contiguous.default": _same,
}
