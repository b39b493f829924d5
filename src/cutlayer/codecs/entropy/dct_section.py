"""A section of coefficients instead of elements, to bytes and back (FORMAT.md, "ems", "Transform")."""

import math
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Buffer

from cutlayer.codecs.entropy import rate_control as search
from cutlayer.codecs.entropy.context_model import Model
from cutlayer.codecs.entropy.dct import LARGEST, MOST_STEP, UNIT, coefficients, rotation, transformable
from cutlayer.codecs.entropy.dct_context_model import fit_shared
from cutlayer.codecs.entropy.layout import MOST_LEVELS, TRANSFORMED, Cursor, Means, varint, wrong
from cutlayer.codecs.entropy.section_reader import read_section
from cutlayer.codecs.entropy.section_shape import Geometry
from cutlayer.codecs.entropy.section_writer import SectionWriter, as_float, as_floats
from cutlayer.codecs.entropy.trial_rows import Part, whole
from cutlayer.codecs.kernels.dispatch import Kernels

_TOPS = 8192  # one coefficient in so many travels as a value
_MOST_TOPS = 16
_USED = 0.9  # of a budget: good enough
_OTHER = 0.25  # steps so far apart, in their logarithms, are tried anew
_FITTED = 1 << 18  # elements from which weights are fitted
_FEW = 1 << 18  # elements that tell what an error of coefficients is in elements

Array = NDArray[Any]


class CoefficientWriter(SectionWriter):
    """Writes coefficients, whose weights are shared, and knows what they come to in elements."""

    doubt = 0.0  # weights are fitted to other coefficients, and few

    def __init__(self, transform: "Transform", top: Any) -> None:
        self.transform = transform
        self.gain: tuple[float, float] | None = None
        super().__init__(transform.y, top, 0, transform.values, True, transform.inner, transform.kernels)

    def fitted(self, step: float) -> Model:
        """See `SectionWriter`; from some samples."""
        shape, stride = self.shape.thinned(max(_FITTED, 4 * self.shape.sample))
        samples = self.x.view(-1, shape.sample)[stride // 2 :: stride]
        _, most, levels = self._tried(step, samples.reshape(-1))
        return self._fitted(most, levels, whole(replace(shape, d=levels.numel())))

    def _fitted(self, most: int, levels: Tensor, of: Part) -> Model:
        """See `SectionWriter`."""

        def cost(model: Model) -> float:
            histogram = self.kernels.ems_contexts(levels, of.shape, of.rows, model, most)[1]
            return self.kernels.ems_tables(histogram)[1]

        return fit_shared(levels.cpu().numpy(), of.shape, most, cost)

    def model_size(self, model: Model) -> int:
        """See `SectionWriter`."""
        return model.rows + int(model.weights.shape[1] + 2 * model.distance.shape[1])

    def error(self, step: float, most: int, levels: Tensor, means: Means) -> float:
        """See `SectionWriter`; of elements, as they will be decoded."""
        tops = as_floats(self.tops, self.transform.values)
        y = self._rebuilt(levels, means, self.x, self.shape, tops)
        return self.transform.distance(y, self.transform.x, self.transform.shape)

    def trial_error(self, step: float) -> float:
        """See `SectionWriter`. What an error of coefficients is in elements, some samples tell."""
        if self.gain is None or abs(math.log(step / self.gain[0])) > _OTHER:
            self.gain = step, self._gain(step)
        return super().trial_error(step) * self.gain[1]

    def _gain(self, step: float) -> float:
        """The error of elements for each of coefficients: less than 1, because elements are clamped."""
        x, y, shape, inner = self.transform.some
        step, most, levels = self._tried(step, y)
        means = self._means(*self._tried(step, self.some))[0]
        found = self._rebuilt(levels, means, y, inner, y[levels == most].abs())
        coefficients = self.kernels.ems_energy(y - found)
        return self.transform.distance(found, x, shape) / coefficients if coefficients > 0 else 1.0

    def _rebuilt(self, levels: Tensor, means: Means, y: Tensor, shape: Geometry, tops: Tensor) -> Tensor:
        out = torch.empty_like(y)
        table = means.table()
        starts = self.kernels.ems_starts(levels, shape, table.shape[1], False)
        self.kernels.ems_rebuild(levels, shape, table, starts, tops, None, out)
        return out.copysign_(y)  # which has the signs, also of top values


class Transform:
    """One section's elements and coefficients."""

    def __init__(self, x: Tensor, shape: Geometry, values: int, kernels: Kernels) -> None:
        self.x, self.shape, self.values, self.kernels = x, shape, values, kernels
        self.lowest, self.highest = float(x.min()), float(x.max())
        self.axes = rotation(x, shape, max(abs(self.lowest), abs(self.highest)) or 1.0)
        self.y = kernels.ems_forward(x, shape, self.axes).view(1, -1)
        self.inner = coefficients(shape)

    @cached_property
    def some(self) -> tuple[Tensor, Tensor, Geometry, Geometry]:
        """Elements and coefficients of a few samples, and their geometries."""
        shape, stride = self.shape.thinned(max(_FEW, 4 * self.shape.sample))
        x = self.x.view(-1, self.shape.sample)[::stride].reshape(-1)
        y = self.y.view(-1, self.inner.sample)[::stride].reshape(-1)
        return x, y, shape, replace(self.inner, d=y.numel())

    def distance(self, y: Tensor, x: Tensor, shape: Geometry) -> float:
        """The squared error of elements that are decoded from coefficients."""
        out = torch.empty_like(x)
        self.kernels.ems_inverse(y, shape, self.axes, self.lowest, self.highest, out)
        return self.kernels.ems_energy(x - out)

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
        tops, first = max(1, self.inner.d // _TOPS), (6 * most / self.inner.d) ** 0.5
        while writer := self._writer(tops, first):
            found = search.within_error(writer, most)
            if found:
                return self._wrapped(self._head(), found)
            tops *= 4  # not even the most levels are fine enough: more coefficients become values
            if tops > self.inner.d // _MOST_TOPS:
                break
        return None

    def _writer(self, tops: int, first_step: float) -> CoefficientWriter | None:
        top: Any = self.kernels.select_top(self.y, tops)
        if not top.largest <= as_float(LARGEST[self.values], self.values):
            return None  # does not fit the type of values
        writer = CoefficientWriter(self, top)
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
        y = kernels.empty([inner.d], torch.float32, out.device)
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
    return kernels.ems_energy(x - out)
