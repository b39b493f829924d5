"""Rules for normalization: batch norm in training and in evaluation, layer norm. See `rules`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cutlayer.onnx_export.graph import Graph, Shape, Value
from cutlayer.onnx_export.tape import Names, Tape


def _column(g: Graph, vector: Value | None, rank: int, otherwise: float) -> str:
    """A value for each channel, in a shape that broadcasts over a batch."""
    if vector is None:
        return g.constant(otherwise)
    name: str = g.add("Unsqueeze", [vector.name, g.indices(0, *range(2, rank))])
    return name


def _batch_norm(
    tape: Tape,
    shapes: Sequence[Shape],
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value | None, ...]:
    """Batch norm: the output, two values that nothing uses, and the new statistics."""
    if not training:
        y, *_ = _frozen_batch_norm(tape, shapes, x, weight, bias, running_mean, running_var, momentum, eps)
        return y, None, None, running_mean, running_var
    f, rank = tape.graph, len(x.shape)
    axes = [0, *range(2, rank)]
    mean = f.reduce("ReduceMean", x.name, axes)
    centred = f.add("Sub", [x.name, mean])
    var = f.reduce("ReduceMean", f.add("Mul", [centred, centred]), axes)
    scale = f.add("Reciprocal", [f.add("Sqrt", [f.add("Add", [var, f.constant(eps)])])])
    unit = f.add("Mul", [centred, scale])
    scaled = f.add("Mul", [unit, _column(f, weight, rank, 1.0)])
    y = f.add("Add", [scaled, _column(f, bias, rank, 0.0)])

    def backward(g: Graph, dy: str) -> Names:
        dw = g.reduce("ReduceSum", g.add("Mul", [dy, unit]), axes, keep=False)
        db = g.reduce("ReduceSum", dy, axes, keep=False)
        if not x.trained:
            return [None, dw, db]
        inner = g.add("Mul", [dy, _column(g, weight, rank, 1.0)])
        along = g.reduce("ReduceMean", g.add("Mul", [inner, unit]), axes)
        level = g.add("Sub", [inner, g.reduce("ReduceMean", inner, axes)])
        return [g.add("Mul", [g.add("Sub", [level, g.add("Mul", [unit, along])]), scale]), dw, db]

    out = tape.record(y, shapes[0], [x, weight, bias], backward)
    count = f.add("Cast", [f.add("Gather", [f.add("Shape", [x.name]), f.constant(0, np.int64)])], to=1)
    count = f.add("Mul", [count, f.constant(float(math.prod(n or 1 for n in x.shape[2:])))])
    unbiased = f.add("Mul", [var, f.add("Div", [count, f.add("Sub", [count, f.constant(1.0)])])])
    new = [
        Value(_moved(f, old, f.add("Squeeze", [found, f.indices(*axes)]), momentum), old.shape)
        for old, found in ((running_mean, mean), (running_var, unbiased))
    ]
    return out, None, None, *new


def _moved(f: Graph, old: Value, found: str, momentum: float) -> str:
    """A running mean after one more value."""
    kept = f.add("Mul", [old.name, f.constant(1 - momentum)])
    name: str = f.add("Add", [kept, f.add("Mul", [found, f.constant(momentum)])])
    return name


def _frozen_batch_norm(
    tape: Tape,
    shapes: Sequence[Shape],
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    var: Value,
    momentum: float,
    eps: float,
) -> tuple[Value | None, ...]:
    """Batch norm in evaluation, with the running statistics."""
    f, rank = tape.graph, len(x.shape)
    scale = f.add(
        "Reciprocal", [f.add("Sqrt", [f.add("Add", [_column(f, var, rank, 1.0), f.constant(eps)])])]
    )
    unit = f.add("Mul", [f.add("Sub", [x.name, _column(f, mean, rank, 0.0)]), scale])
    scaled = f.add("Mul", [unit, _column(f, weight, rank, 1.0)])
    y = f.add("Add", [scaled, _column(f, bias, rank, 0.0)])
    axes = [0, *range(2, rank)]

    def backward(g: Graph, dy: str) -> Names:
        dx = g.add("Mul", [g.add("Mul", [dy, _column(g, weight, rank, 1.0)]), scale]) if x.trained else None
        dw = g.reduce("ReduceSum", g.add("Mul", [dy, unit]), axes, keep=False)
        return [dx, dw, g.reduce("ReduceSum", dy, axes, keep=False)]

    return tape.record(y, shapes[0], [x, weight, bias], backward), None, None


def _layer_norm(
    tape: Tape, shapes: Sequence[Shape], x: Value, over: Sequence[int], weight: Any, bias: Any, eps: float
) -> tuple[Value, None, None]:
    f, rank = tape.graph, len(x.shape)
    axes = list(range(rank - len(over), rank))
    centred = f.add("Sub", [x.name, f.reduce("ReduceMean", x.name, axes)])
    var = f.reduce("ReduceMean", f.add("Mul", [centred, centred]), axes)
    scale = f.add("Reciprocal", [f.add("Sqrt", [f.add("Add", [var, f.constant(eps)])])])
    unit = f.add("Mul", [centred, scale])
    scaled = f.add("Mul", [unit, weight.name]) if weight is not None else unit
    y = f.add("Add", [scaled, bias.name]) if bias is not None else scaled
    batch = list(range(rank - len(over)))

    def backward(g: Graph, dy: str) -> Names:
        dw = g.reduce("ReduceSum", g.add("Mul", [dy, unit]), batch, keep=False)
        db = g.reduce("ReduceSum", dy, batch, keep=False)
        inner = g.add("Mul", [dy, weight.name]) if weight is not None else dy
        along = g.reduce("ReduceMean", g.add("Mul", [inner, unit]), axes)
        level = g.add("Sub", [inner, g.reduce("ReduceMean", inner, axes)])
        return [g.add("Mul", [g.add("Sub", [level, g.add("Mul", [unit, along])]), scale]), dw, db]

    return tape.record(y, shapes[0], [x, weight, bias], backward), None, None


NORM_RULES: dict[str, Callable[..., Any]] = {
    "aten._native_batch_norm_legit_functional.default": _batch_norm,
    "aten._native_batch_norm_legit_no_training.default": _frozen_batch_norm,
    "aten.native_layer_norm.default": _layer_norm,
}
