"""A section of coefficients instead of elements, to bytes and back (FORMAT.md, "ems", "Transform")."""

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Buffer

from cutlayer.codecs.entropy import search
from cutlayer.codecs.entropy.geometry import Geometry
from cutlayer.codecs.entropy.model import Model
from cutlayer.codecs.entropy.reader import read_section
from cutlayer.codecs.entropy.section import MOST_LEVELS, TRANSFORMED, Cursor, varint, wrong
from cutlayer.codecs.entropy.shared import fit_shared
from cutlayer.codecs.entropy.transform import LARGEST, MOST_STEP, UNIT, coefficients, rotation, transformable
from cutlayer.codecs.entropy.writer import SectionWriter, as_float
from cutlayer.codecs.kernels import Kernels

_TOPS = 8192  # one coefficient in so many travels as a value
_MOST_TOPS = 16
_USED = 0.9  # of a budget: good enough
_NEAR = 0.985  # of the error that is allowed: good enough
_TRIES = 6

Array = NDArray[Any]


class CoefficientWriter(SectionWriter):
    """Writes coefficients, whose weights are shared."""

    def _fitted(self, most: int, levels: Tensor, shape: Geometry) -> Model:
        """See `SectionWriter`."""

        def cost(model: Model) -> float:
            histogram = self.kernels.ems_contexts(levels, shape, (0, shape.height), model, most)[1]
            return self.kernels.ems_tables(histogram)[1]

        return fit_shared(levels.cpu().numpy(), shape, most, cost)

    def model_size(self, model: Model) -> int:
        """See `SectionWriter`."""
        return model.rows + int(model.weights.shape[1] + 2 * model.distance.shape[1])


class Transform:
    """One section's elements and coefficients."""

    def __init__(self, x: Tensor, shape: Geometry, values: int, kernels: Kernels) -> None:
        self.x, self.shape, self.values, self.kernels = x, shape, values, kernels
        self.lowest, self.highest = float(x.min()), float(x.max())
        self.axes = rotation(x, shape, max(abs(self.lowest), abs(self.highest)) or 1.0)
        self.y = kernels.ems_forward(x, shape, self.axes).view(1, -1)
        self.inner = coefficients(shape)

    def within_bytes(self, budget: int) -> search.Made | None:
        """The section of least error that takes at most so many bytes; none if there is none."""
        head = self._head()
        left = budget - len(head) - 5  # the size in front takes up to five bytes
        if left <= 0:
            return None
        # About one coefficient is not zero for each so many bits.
        some = self.y[0, :: max(1, self.inner.d >> 16) | 1].abs()
        first = float(some.kthvalue(max(1, some.numel() - some.numel() * 2 * left // self.inner.d)).values)
        tops, best = max(1, min(self.inner.d // _TOPS, left // 16)), None
        while writer := self._writer(tops, first):
            made = self._wrapped(head, search.within_bytes(writer, left))
            if len(made[0]) <= budget:
                best = made
            tops *= 4
            # With bytes to spare and no more levels to spend them on, more coefficients become values.
            if len(made[0]) > _USED * budget or made[1] < MOST_LEVELS or tops > self.inner.d // _MOST_TOPS:
                break
        return best

    def within_error(self, most: float) -> search.Made | None:
        """The smallest section that leaves at most so much squared error; none if it cannot be done."""
        head, tops, allowed = self._head(), max(1, self.inner.d // _TOPS), 1.06 * most
        best: search.Made | None = None
        first = (6 * most / self.inner.d) ** 0.5
        writer = self._writer(tops, first)
        for _ in range(_TRIES):
            found = search.within_error(writer, allowed) if writer else None
            if found is None:  # not even the most levels are fine enough: more coefficients become values
                tops *= 4
                if writer is None or best or tops > self.inner.d // _MOST_TOPS:
                    break
                writer = self._writer(tops, first)
                continue
            made = self._wrapped(head, found)
            left = squared_error(made, self.x, self.shape, self.values, False, self.kernels)
            if left <= most:
                best = made if best is None or len(made[0]) < len(best[0]) else best
                if left >= _NEAR * most:
                    break
            # What is cut off below the lowest element costs no error, which only the elements can tell.
            allowed *= 0.994 * most / left if left > 0 else 2.0
        return best

    def _writer(self, tops: int, first_step: float) -> CoefficientWriter | None:
        top: Any = self.kernels.select_top(self.y, tops)
        if not top.largest <= as_float(LARGEST[self.values], self.values):
            return None  # does not fit the type of values
        writer = CoefficientWriter(self.y, top, 0, self.values, True, self.inner, self.kernels)
        # Most of the range belongs to few coefficients: a search from its upper end begins far off.
        if 0 < first_step < writer.first_step:
            writer.first_step = first_step
        return writer

    def _head(self) -> bytes:
        axes = self.axes.astype("<i2").tobytes()
        return struct.pack("<Bff", TRANSFORMED, self.lowest, self.highest) + axes

    @staticmethod
    def _wrapped(head: bytes, made: search.Made) -> search.Made:
        inner = Cursor(memoryview(made[0]))
        inner.varint(len(made[0]))
        body = head + made[0][inner.at :]
        return varint(len(body)) + body, made[1]


def read(
    cursor: Cursor,
    frame: Buffer,
    start: int,
    shape: Geometry,
    levels: int,
    means: bool,
    values: int,
    signed: bool,
    kernels: Kernels,
) -> Callable[[Tensor], None]:
    """See `read_section`; here the section may be transformed."""
    if cursor.data[:1] != bytes([TRANSFORMED]):
        return read_section(cursor, frame, start, shape, levels, means, values, signed, kernels)
    cursor.byte()
    if not means or not transformable(shape):
        raise wrong(f"planes of {shape.height} x {shape.width} in {shape.channels} channels are transformed")
    lowest, highest = struct.unpack("<ff", cursor.take(8))
    if not -np.inf < lowest <= highest < np.inf:
        raise wrong(f"elements lie between {lowest} and {highest}")
    axes = cursor.array("<i2", shape.channels, shape.channels)
    if int(axes.min()) <= -UNIT:
        raise wrong("an entry of a rotation is not above -1")
    inner = coefficients(shape)
    rebuild = read_section(
        cursor, frame, start, inner, levels, True, values, True, kernels, LARGEST, MOST_STEP
    )

    def inverse(out: Tensor) -> None:
        y = torch.empty(inner.d, dtype=torch.float32, device=out.device)
        rebuild(y)
        kernels.ems_inverse(y, shape, axes, lowest, highest, out)

    return inverse


def squared_error(
    made: search.Made, x: Tensor, shape: Geometry, values: int, signed: bool, kernels: Kernels
) -> float:
    """Of a section whose levels are means, as it will be decoded."""
    section = Cursor(memoryview(made[0]))
    size = section.varint(len(made[0]))
    start = section.at
    out = torch.empty_like(x)
    read(Cursor(section.take(size)), made[0], start, shape, made[1], True, values, signed, kernels)(out)
    return squared(x, out)


def squared(x: Tensor, y: Tensor | None = None) -> float:
    """The sum of squares of a row, or of its difference from another."""
    # In NumPy, which adds in the same order whatever the number of threads.
    a, b = x.cpu().numpy(), None if y is None else y.cpu().numpy()
    total = 0.0
    for i in range(0, len(a), 1 << 20):
        part = a[i : i + (1 << 20)]
        if b is not None:
            part = np.subtract(part, b[i : i + (1 << 20)], dtype=np.float64)
        total += float(np.square(part, dtype=np.float64).sum())
    return total
