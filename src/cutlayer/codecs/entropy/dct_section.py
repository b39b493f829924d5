"""Encode and decode a section of DCT coefficients instead of elements (FORMAT.md, "Transform")."""

import math
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from cutlayer.codecs.entropy import rate_control
from cutlayer.codecs.entropy.context_model import ContextModel
from cutlayer.codecs.entropy.dct import MAX_COEFFICIENT_BITS, MAX_STEP, coefficient_shape, dct_applies
from cutlayer.codecs.entropy.dct_context_model import fit_dct_model
from cutlayer.codecs.entropy.layout import (
    DCT,
    MAX_LEVELS,
    ByteReader,
    ReconstructionPoints,
    malformed,
    varint,
)
from cutlayer.codecs.entropy.pca import ROTATION_UNIT, channel_rotation
from cutlayer.codecs.entropy.plain.payload import Payload
from cutlayer.codecs.entropy.rate_control import Encoded
from cutlayer.codecs.entropy.section_reader import read_section
from cutlayer.codecs.entropy.section_shape import SectionShape
from cutlayer.codecs.entropy.section_writer import SectionWriter, as_float, as_floats
from cutlayer.codecs.entropy.trial_rows import TrialRows, all_rows
from cutlayer.codecs.kernels.interface import Kernels
from cutlayer.codecs.tensors import Tensor, count, host

_TOP_SHARE = 8192  # one coefficient in so many is a top value
_MAX_TOP_SHARE = 16  # the limit, when levels alone are not fine enough
_BUDGET_USED = 0.9  # a section that uses this share of its budget is good enough
_GAIN_RANGE = 0.25  # |log(step / other step)| up to which both steps have the same gain
_FIT_ELEMENTS = 1 << 18  # elements to which context models are fitted
_GAIN_ELEMENTS = 1 << 16  # elements from which the gain is measured

Array = NDArray[Any]


class CoefficientWriter(SectionWriter):
    """Writes the coefficients of a `DctSection`. Its errors are those of the decoded elements."""

    overfit_bits = 0.0  # shared weights are few, and fitted to other samples than the trial rows

    def __init__(self, dct: "DctSection", top: Any) -> None:
        self.dct = dct
        self.gain: tuple[float, float] | None = None  # a step, and the gain there
        super().__init__(dct.y, top, 0, dct.values, True, dct.inner, dct.kernels)

    def fit_model(self, step: float) -> ContextModel:
        """See `SectionWriter`. Fitted to some samples."""
        shape, stride = self.shape.thinned(max(_FIT_ELEMENTS, 4 * self.shape.sample))
        samples = self.x.reshape(-1, shape.sample)[stride // 2 :: stride]
        _, n_levels, levels = self._quantize_subset(step, samples.reshape(-1))
        return self._fit_model(n_levels, levels, all_rows(replace(shape, d=len(levels))))

    def _fit_model(self, n_levels: int, levels: Tensor, of: TrialRows) -> ContextModel:
        """See `SectionWriter`."""

        def cost(model: ContextModel) -> float:
            histogram = self.kernels.ems_contexts(levels, of.shape, of.rows, model, n_levels)[1]
            return self.kernels.ems_frequency_tables(histogram)[1]

        return fit_dct_model(host(levels), of.shape, n_levels, cost)

    def model_size(self, model: ContextModel) -> int:
        """See `SectionWriter`."""
        return model.rows + int(model.weights.shape[1] + 2 * model.distance.shape[1])

    def error(self, step: float, n_levels: int, levels: Tensor, points: ReconstructionPoints) -> float:
        """See `SectionWriter`. The error of elements, as they will be decoded."""
        tops = as_floats(self.top_magnitudes, self.dct.values)
        y = self._dequantize(levels, points, self.x, self.shape, tops)
        return self.dct.squared_error(y, self.dct.x, self.dct.shape)

    def error_of_few(self, step: float, n_levels: int, levels: Tensor, points: ReconstructionPoints) -> float:
        """See `SectionWriter`. Here `error` is of full precision."""
        return 0.0

    def estimate_error(self, step: float) -> float:
        """See `SectionWriter`.

        The error of coefficients times the gain, which is measured on some samples.
        """
        if self.gain is None or abs(math.log(step / self.gain[0])) > _GAIN_RANGE:
            self.gain = step, self._measure_gain(step)
        return super().estimate_error(step) * self.gain[1]

    def _measure_gain(self, step: float) -> float:
        """Squared error of elements over that of coefficients.

        Below 1, because decoded elements are clamped.
        """
        x, y, shape, inner = self.dct.some_samples
        step, n_levels, levels = self._quantize_subset(step, y)
        points = self._fit_points(*self._quantize_subset(step, self.trial_elements))[0]
        found = self._dequantize(levels, points, y, inner, abs(host(y[levels == n_levels])))
        coefficients = self.kernels.ems_energy(y - found)
        return self.dct.squared_error(found, x, shape) / coefficients if coefficients > 0 else 1.0

    def _dequantize(
        self, levels: Tensor, points: ReconstructionPoints, y: Tensor, shape: SectionShape, tops: Array
    ) -> Tensor:
        """Decoded coefficients; the signs are taken from the original ones, `y`."""
        out = self.kernels.empty_like(y, count(y))
        table = points.values()
        offsets = self.kernels.ems_sample_offsets(levels, shape, table.shape[1], False)
        self.kernels.ems_dequantize(levels, shape, table, offsets, tops, None, out)
        return np.copysign(out, y, out=out) if isinstance(out, np.ndarray) else out.copysign_(y)


class DctSection:
    """One section's elements `x` and DCT coefficients `y`, and how to encode them."""

    def __init__(self, x: Tensor, shape: SectionShape, values: int, kernels: Kernels) -> None:
        self.x, self.shape, self.values, self.kernels = x, shape, values, kernels
        self.lowest, self.highest = float(x.min()) + 0.0, float(x.max()) + 0.0  # -0 becomes 0
        self.rotation = channel_rotation(x, shape, max(abs(self.lowest), abs(self.highest)) or 1.0)
        self.y = kernels.ems_dct_forward(x, shape, self.rotation).reshape(1, -1)
        self.inner = coefficient_shape(shape)

    @cached_property
    def some_samples(self) -> tuple[Tensor, Tensor, SectionShape, SectionShape]:
        """Elements and coefficients of some samples, and the shapes of both."""
        shape, stride = self.shape.thinned(max(_GAIN_ELEMENTS, 2 * self.shape.sample))
        x = self.x.reshape(-1, self.shape.sample)[::stride].reshape(-1)
        y = self.y.reshape(-1, self.inner.sample)[::stride].reshape(-1)
        return x, y, shape, replace(self.inner, d=len(y))

    def squared_error(self, y: Tensor, x: Tensor, shape: SectionShape) -> float:
        """The squared error of the elements that coefficients `y` decode to."""
        out = self.kernels.empty_like(x, count(x))
        self.kernels.ems_dct_inverse(y, shape, self.rotation, self.lowest, self.highest, out)
        return self.kernels.ems_energy(x - out)

    def within_bytes(self, budget: int) -> Encoded | None:
        """The section of least error in at most `budget` bytes; None if there is none."""
        header = self._header()
        left = budget - len(header) - 5  # the section's size, in front of it, takes up to five bytes
        if left <= 0:
            return None
        # The search begins at the step that leaves about one nonzero coefficient for every four bits.
        some = abs(host(self.y[0, :: max(1, self.inner.d >> 16) | 1]))
        rank = max(1, len(some) - len(some) * 2 * left // self.inner.d)
        first = float(np.partition(some, rank - 1)[rank - 1])
        tops, best = max(1, min(self.inner.d // _TOP_SHARE, left // 16)), None
        while writer := self._writer(tops, first):
            encoded = self._with_header(header, rate_control.within_bytes(writer, left))
            if len(encoded[0]) <= budget:
                best = encoded
            tops *= 4
            # Bytes are left over at the most levels: then more coefficients become top values.
            full = len(encoded[0]) > _BUDGET_USED * budget or encoded[1] < MAX_LEVELS
            if full or tops > self.inner.d // _MAX_TOP_SHARE:
                break
        return best

    def within_error(self, bound: float) -> Encoded | None:
        """The smallest section whose squared error is at most `bound`; None if there is none."""
        tops, first = max(1, self.inner.d // _TOP_SHARE), (6 * bound / self.inner.d) ** 0.5
        while writer := self._writer(tops, first):
            found = rate_control.within_error(writer, bound)
            if found:
                return self._with_header(self._header(), found)
            tops *= 4  # even the most levels are too coarse: more coefficients become top values
            if tops > self.inner.d // _MAX_TOP_SHARE:
                break
        return None

    def _writer(self, tops: int, first_step: float) -> CoefficientWriter | None:
        """A writer with so many top values; None if a coefficient is too large for the type of values."""
        top: Any = self.kernels.select_top(self.y, tops)
        if not top.largest <= as_float(MAX_COEFFICIENT_BITS[self.values], self.values):
            return None
        writer = CoefficientWriter(self, top)
        # Few coefficients are large, so the smallest top value is a poor starting point for the search.
        if 0 < first_step < writer.first_step:
            writer.first_step = first_step
        return writer

    def _header(self) -> bytes:
        rotation = self.rotation.astype("<i2").tobytes()
        return struct.pack("<Bff", DCT, self.lowest, self.highest) + rotation

    @staticmethod
    def _with_header(header: bytes, encoded: Encoded) -> Encoded:
        """Put the header in front of the coefficients' section, and one size in front of both."""
        inner = ByteReader(memoryview(encoded[0]))
        inner.varint(len(encoded[0]))
        body = header + encoded[0][inner.at :]
        return varint(len(body)) + body, encoded[1]


def read_any_section(
    reader: ByteReader,
    frame: Buffer,
    start: int,
    shape: SectionShape,
    levels: int,
    rounding: str,
    values: int,
    signed: bool,
    kernels: Kernels,
) -> Callable[[Tensor], None]:
    """Like `read_section`, for a section of elements or of DCT coefficients."""
    if reader.data[:1] != bytes([DCT]):
        return read_section(reader, frame, start, shape, levels, rounding, values, signed, kernels)
    reader.byte()
    if rounding != "mean" or not dct_applies(shape):
        raise malformed(
            f"planes of {shape.height} x {shape.width} in {shape.channels} channels are transformed"
        )
    lowest, highest = struct.unpack("<ff", reader.take(8))
    if not -np.inf < lowest <= highest < np.inf:
        raise malformed(f"elements lie between {lowest} and {highest}")
    rotation = reader.array("<i2", shape.channels, shape.channels)
    if int(rotation.min()) <= -ROTATION_UNIT:
        raise malformed("an entry of a rotation is not above -1")
    inner = coefficient_shape(shape)
    limits = (MAX_COEFFICIENT_BITS, MAX_STEP)
    dequantize = read_section(reader, frame, start, inner, levels, "mean", values, True, kernels, *limits)

    def inverse(out: Tensor) -> None:
        y = kernels.empty_like(out, inner.d)
        dequantize(y)
        kernels.ems_dct_inverse(y, shape, rotation, lowest, highest, out)

    return inverse


def squared_error(
    encoded: Encoded, x: Tensor, shape: SectionShape, values: int, signed: bool, kernels: Kernels
) -> float:
    """The squared error of a section with rounding `mean`, as it will be decoded."""
    section = ByteReader(memoryview(encoded[0]))
    size = section.varint(len(encoded[0]))
    start = section.at
    out = kernels.empty_like(x, count(x))
    levels = encoded[1]
    payload = Payload(encoded[0], 0, shape, levels, "mean", values, signed, out.reshape(1, -1))
    if kernels.ems_decode_sections([payload]):
        return kernels.ems_energy(x - out)
    body = ByteReader(section.take(size))
    read_any_section(body, encoded[0], start, shape, levels, "mean", values, signed, kernels)(out)
    return kernels.ems_energy(x - out)
