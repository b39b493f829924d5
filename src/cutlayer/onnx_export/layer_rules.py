"""Rules for layers: convolution and pooling. See `rules`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cutlayer.onnx_export.graph import Graph, Shape, Value
from cutlayer.onnx_export.norm_rules import NORM_RULES
from cutlayer.onnx_export.rules import RULES
from cutlayer.onnx_export.tape import Names, Tape, cannot


def _pair(values: Any, rank: int) -> list[int]:
    found = [values] * rank if isinstance(values, int) else list(values)
    return found * rank if len(found) == 1 else found


def _convolution(
    tape: Tape,
    shape: Shape,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool = False,
    output_padding: Any = 0,
    groups: int = 1,
) -> Value:
    rank = len(weight.shape) - 2
    if transposed:
        raise cannot("a transposed convolution")
    if groups != 1 and weight.trained:
        raise cannot(f"a convolution in {groups} groups")
    s, p, d = (_pair(values, rank) for values in (stride, padding, dilation))
    how: dict[str, Any] = {"strides": s, "pads": p + p, "dilations": d, "group": groups}
    inputs = [x.name, weight.name] + ([] if bias is None else [bias.name])
    y = tape.graph.add("Conv", inputs, **how)
    kernel, before, after = weight.shape[2:], x.shape[2:], shape[2:]

    def backward(g: Graph, dy: str) -> Names:
        dx = dw = db = None
        if x.trained:
            # What the strides leave over at the end.
            rest = [
                n - ((m - 1) * s[i] - 2 * p[i] + d[i] * (k - 1) + 1)
                for i, (n, m, k) in enumerate(_sizes(before, after, kernel))
            ]
            dx = g.add("ConvTranspose", [dy, weight.name], output_padding=rest, **how)
        if weight.trained:
            # The sum over samples is a convolution whose channels are the samples, and whose kernel is `dy`.
            turned = [1, 0, *range(2, 2 + rank)]
            images, kernels = (g.add("Transpose", [v], perm=turned) for v in (x.name, dy))
            dw = g.add("Conv", [images, kernels], strides=d, pads=p + p, dilations=s)
            sizes = _sizes(before, after, kernel)
            whole = [(n + 2 * p[i] - s[i] * (m - 1) - 1) // d[i] + 1 for i, (n, m, _) in enumerate(sizes)]
            if whole != [k for *_, k in sizes]:
                axes = g.indices(*range(2, 2 + rank))
                ends = g.indices(*(k for *_, k in sizes))
                dw = g.add("Slice", [dw, g.indices(*[0] * rank), ends, axes])
            dw = g.add("Transpose", [dw], perm=turned)
        if bias is not None and bias.trained:
            db = g.reduce("ReduceSum", dy, [0, *range(2, 2 + rank)], keep=False)
        return [dx, dw, db]

    return tape.record(y, shape, [x, weight, bias], backward)


def _sizes(*shapes: Sequence[int | None]) -> list[tuple[int, ...]]:
    if any(size is None for shape in shapes for size in shape):
        raise cannot("a layer on images of any size")
    return list(zip(*shapes, strict=True))


def _conv2d(
    tape: Tape,
    shape: Shape,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Value:
    return _convolution(tape, shape, x, weight, bias, stride, padding, dilation, groups=groups)


def _max_pool(
    tape: Tape,
    shapes: Sequence[Shape],
    x: Value,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil: bool = False,
) -> tuple[Value, None]:
    k, p, d = (_pair(values, 2) for values in (kernel, padding, dilation))
    s = _pair(stride, 2) if stride else k
    how = {"kernel_shape": k, "strides": s, "pads": p + p, "dilations": d, "ceil_mode": int(ceil)}
    y, where = tape.graph.add("MaxPool", [x.name], 2, **how)

    def backward(g: Graph, dy: str) -> Names:
        size = g.add("Shape", [x.name])
        zeros = g.add(
            "Expand", [g.constant([0.0]), g.add("Reshape", [g.add("Size", [x.name]), g.indices(1)])]
        )
        flat, at = (g.add("Reshape", [value, g.indices(-1)]) for value in (dy, where))
        return [
            g.add("Reshape", [g.add("ScatterElements", [zeros, at, flat], axis=0, reduction="add"), size])
        ]

    return tape.record(y, shapes[0], [x], backward), None


def _avg_pool(
    tape: Tape,
    shape: Shape,
    x: Value,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil: bool = False,
    count_include_pad: bool = True,
    divisor: Any = None,
) -> Value:
    k, p = _pair(kernel, 2), _pair(padding, 2)
    s = _pair(stride, 2) if stride else k
    if ceil or divisor is not None or (any(p) and not count_include_pad):
        raise cannot("average pooling with ceil_mode, a divisor or borders that do not count")
    y = tape.graph.add("AveragePool", [x.name], kernel_shape=k, strides=s, pads=p + p, count_include_pad=1)

    def backward(g: Graph, dy: str) -> Names:
        channels = x.shape[1] or 1
        weight = g.constant(np.full((channels, 1, *k), 1 / math.prod(k)))
        rest = [
            n - ((m - 1) * s[i] - 2 * p[i] + k[i]) for i, (n, m) in enumerate(_sizes(x.shape[2:], shape[2:]))
        ]
        how: dict[str, Any] = {"strides": s, "pads": p + p, "group": channels, "output_padding": rest}
        return [g.add("ConvTranspose", [dy, weight], **how)]

    return tape.record(y, shape, [x], backward)


def _adaptive_pool(tape: Tape, shape: Shape, x: Value, size: Any) -> Value:
    target = _pair(size, 2)
    sizes = [n for (n,) in _sizes(x.shape[2:])]
    if any(n % m for n, m in zip(sizes, target, strict=True)):
        raise cannot(f"adaptive pooling of {sizes} to {target}")
    return _avg_pool(tape, shape, x, [n // m for n, m in zip(sizes, target, strict=True)])


#: All rules: of elements and shapes, of normalization, and of layers.
ALL_RULES: dict[str, Callable[..., Any]] = (
    RULES
    | NORM_RULES
    | {
        "aten.convolution.default": _convolution,
        "aten.conv1d.default": _conv2d,
        "aten.conv2d.default": _conv2d,
        "aten.max_pool2d_with_indices.default": _max_pool,
        "aten.avg_pool2d.default": _avg_pool,
        "aten._adaptive_avg_pool2d.default": _adaptive_pool,
        "aten.adaptive_avg_pool2d.default": _adaptive_pool,
    }
)
