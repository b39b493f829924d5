"""Encode one section of an `ems` payload at a given quantizer step, or estimate what that would cost."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs.entropy.context_model import ContextModel, weights_per_channel
from cutlayer.codecs.entropy.frequency_tables import COST_BITS, FrequencyTables
from cutlayer.codecs.entropy.layout import (
    ACTIVITIES,
    MAX_LEVELS,
    UNITS_PER_STEP,
    ReconstructionPoints,
    SectionHeader,
    level_centres,
    varint,
)
from cutlayer.codecs.entropy.section_shape import SectionShape
from cutlayer.codecs.entropy.trial_rows import TrialRows, all_rows, trial_rows
from cutlayer.codecs.kernels.float_types import widened_bfloat16
from cutlayer.codecs.kernels.interface import Kernels
from cutlayer.codecs.tensors import Tensor, host

# The quantizer, in 1/64 of a step: magnitudes below the dead zone get level 0; above it, a remainder from
# ROUND_UP_FROM on gets the next level.
DEAD_ZONE, ROUND_UP_FROM = 38, 35
MIN_STEP, MAX_STEP = 2.0**-120, 2.0**119  # so that 1/64 of a step, and 127 steps, are float32
_MIN_FOR_ACTIVITY = 1 << 15  # elements: with fewer, one reconstruction point a level
_MAX_FOR_ACTIVITY = 16  # levels: with more, one reconstruction point a level
_MOST_OVERFIT = 0.25  # of the bits of the trial rows
_LANE_BYTES = 3  # bytes of a lane's rANS state that carry no levels, on average

Array = NDArray[Any]


@dataclass(frozen=True)
class Mask:
    """The level of each element, with the statistics to entropy-code them.

    Level `n_levels` marks a top value.
    """

    step: float
    n_levels: int
    levels: Tensor
    contexts: Tensor
    model: ContextModel
    tables: FrequencyTables
    bytes: float  # an estimate of the section's size


class SectionWriter:
    """The elements of one section: encodes them, and estimates size and error on a subset of their rows."""

    # A model fitted to the trial rows codes these better than the others, by about so many bits for each
    # weight.
    overfit_bits = 2.0
    model_range = 0.4  # |log(step / other step)| up to which both steps use the same context model
    stochastic = False  # whether levels decode to multiples of the step

    def __init__(
        self, x: Tensor, top: Any, row: int, values: int, signed: bool, shape: SectionShape, kernels: Kernels
    ) -> None:
        self.x, self.signed, self.shape, self.kernels = x[row], signed, shape, kernels
        raw, self.top_positions = kernels.ems_top_values(x, top, row, values)
        sign_bit = 31 if values == 0 else 15
        self.top_magnitudes = raw & ((1 << sign_bit) - 1)  # as bits
        self.count, self.low = len(self.top_magnitudes), int(self.top_magnitudes.min())
        self.width = (int(self.top_magnitudes.max()) - self.low).bit_length()
        code = self.top_magnitudes - self.low
        self.top_stream = self.pack(code << 1 | raw >> sign_bit if signed else code, self.width + signed)
        self.topmin = as_float(self.low, values)
        self.first_step = self.topmin / 3  # where a search begins
        self.all_rows, self.trial_rows = all_rows(shape), trial_rows(shape)
        self.trial_elements = self.trial_subset(self.x)
        self.threshold = float(top.topmin[row])
        self.last_fit: tuple[float, ContextModel] | None = None

    @cached_property
    def negative(self) -> bool:
        """Whether there are negative elements."""
        return self.signed and bool(self.x.min() < 0)

    @property
    def has_many_channels(self) -> bool:
        """Whether more channels than 64 have weights of their own."""
        return self.shape.channels > 64 and weights_per_channel(self.shape)

    def trial_subset(self, elements: Tensor) -> Tensor:
        """The trial rows of all elements, or of all levels."""
        if self.trial_rows.where is None:
            return elements
        rows = self.trial_rows.shape.height
        return self.kernels.ems_gather_rows(elements, self.shape, self.trial_rows.where, rows)

    def pack(self, codes: Any, width: int) -> bytes:
        """Codes of `width` bits as a bit stream."""
        return bytes(self.kernels.ems_pack_bits(codes, width)) if width and len(codes) else b""

    @staticmethod
    def scale(step: float) -> float:
        """The factor from magnitudes to 1/64 of a step, as a float32."""
        return float(np.float32(UNITS_PER_STEP / step))

    def levels_up_to_topmin(self, step: float) -> int:
        """How many levels a step makes below the smallest top value, at most MAX_LEVELS."""
        units = round(min(16383.0, float(np.float32(self.topmin) * np.float32(self.scale(step)))))
        if units < DEAD_ZONE:
            return 1
        return min(MAX_LEVELS, 1 + max(1, (units + UNITS_PER_STEP - ROUND_UP_FROM) // UNITS_PER_STEP))

    def estimate(self, step: float) -> Mask:
        """The mask of the trial rows alone, with an estimate of the whole section's size."""
        levels = self._quantize_subset(step, self.trial_elements)
        return self.make_mask(*levels, self.trial_rows, self.model_for(step))

    def estimate_error(self, step: float) -> float:
        """An estimate of the section's squared error at a step, from the trial rows."""
        return self._fit_points(*self._quantize_subset(step, self.trial_elements))[1]

    def model_for(self, step: float) -> ContextModel:
        """The context model for a step. A close step's model is reused: weights hardly depend on the step."""
        if self.last_fit is None or abs(math.log(step / self.last_fit[0])) > self.model_range:
            self.last_fit = step, self.fit_model(step)
        return self.last_fit[1]

    def fit_model(self, step: float) -> ContextModel:
        """Fit a context model at this step, to the trial rows."""
        _, n_levels, levels = self._quantize_subset(step, self.trial_elements)
        return self._fit_model(n_levels, levels, self.trial_rows)

    def _quantize_subset(self, step: float, elements: Tensor) -> tuple[float, int, Tensor]:
        """Step, number of levels and levels of some elements.

        All ties at the threshold count as top values.
        """
        step = min(max(step, MIN_STEP), MAX_STEP)
        n_levels = self.levels_up_to_topmin(step)
        return step, n_levels, self.kernels.ems_quantize(elements, self.scale(step), n_levels, self.threshold)

    def _fit_model(self, n_levels: int, levels: Tensor, of: TrialRows) -> ContextModel:
        per_channel = weights_per_channel(self.shape)
        return self.kernels.ems_fit_weights(levels, of.shape, of.rows, n_levels, per_channel)

    def quantize(self, step: float, n_levels: int = 0) -> tuple[float, int, Tensor]:
        """Step, number of levels and levels of all elements, with top values marked.

        Without `n_levels`, the levels reach up to the smallest top value.
        """
        step = min(max(step, MIN_STEP), MAX_STEP)
        n_levels = n_levels or self.levels_up_to_topmin(step)
        levels = self.kernels.ems_quantize(self.x, self.scale(step), n_levels, math.inf)
        return step, n_levels, self._mark_tops(levels, n_levels)

    def mask_at(self, step: float, model: ContextModel | None = None, n_levels: int = 0) -> Mask:
        """The mask of all elements at a step."""
        return self.make_mask(*self.quantize(step, n_levels), self.all_rows, model)

    def mask_from(self, n_levels: int, levels: Tensor) -> Mask:
        """The mask from levels that another quantizer made; top values are marked here."""
        return self.make_mask(0.0, n_levels, self._mark_tops(levels, n_levels), self.all_rows)

    def _mark_tops(self, levels: Tensor, n_levels: int) -> Tensor:
        levels[self.top_positions] = n_levels
        return levels

    def make_mask(
        self, step: float, n_levels: int, levels: Tensor, of: TrialRows, model: ContextModel | None = None
    ) -> Mask:
        """Add contexts, frequency tables and the estimated size to levels."""
        model = model or self._fit_model(n_levels, levels, of)
        contexts, histogram = self.kernels.ems_contexts(levels, of.shape, of.rows, model, n_levels)
        # Scaled up to the whole section, so that the trial rows get as many classes as the section will.
        times = round(self.shape.d / of.counted)
        tables, cost = self.kernels.ems_frequency_tables(histogram * times if times > 1 else histogram)
        signs = int(histogram[:, 1:n_levels].sum()) if self.signed else 0
        bits = cost / (1 << COST_BITS) / times + signs
        if of.where is not None:
            overfit = self.overfit_bits * (model.weights.size + model.distance.size)
            bits += min(overfit, _MOST_OVERFIT * bits) + tables.frequencies.size
        # The header: a frequency takes one byte or two, all else is small.
        header = 40 + len(self.top_stream) + self.activities(n_levels) * n_levels + 3 * self.shape.blocks
        header += self.model_size(model) + len(tables.starts) * (1 + 3 * n_levels // 2)
        size = bits * (self.shape.d / of.counted) / 8 + _LANE_BYTES * self.shape.lanes + header
        return Mask(step, n_levels, levels, contexts, model, tables, size)

    def model_size(self, model: ContextModel) -> int:
        """About how many bytes a context model takes."""
        return model.weights.size + 2 * model.distance.size

    def activities(self, n_levels: int) -> int:
        """How many activity classes there are: 1 where more reconstruction points would not pay."""
        return ACTIVITIES if self.shape.d >= _MIN_FOR_ACTIVITY and 1 < n_levels <= _MAX_FOR_ACTIVITY else 1

    def fit_points(self, step: float, n_levels: int, levels: Tensor) -> ReconstructionPoints:
        """The reconstruction points of levels: the mean of each level's elements in the trial rows."""
        return self._fit_points(step, n_levels, self.trial_subset(levels))[0]

    def error(self, step: float, n_levels: int, levels: Tensor, points: ReconstructionPoints) -> float:
        """The squared error of the section with these reconstruction points."""
        scale = self.scale(step)
        return self.kernels.ems_squared_error(self.x, levels, self.shape, scale, points.units()) / scale**2

    def error_of_few(self, step: float, n_levels: int, levels: Tensor, points: ReconstructionPoints) -> float:
        """The squared error of a small section in full precision; 0 for a large one."""
        if self.shape.d >= _MIN_FOR_ACTIVITY:
            return 0.0
        magnitudes, chosen = np.abs(host(self.x).astype(np.float64)), host(levels)
        off = magnitudes - np.append(points.values()[0], 0).astype(np.float64)[chosen]
        return float((off * off)[chosen != n_levels].sum())

    def _fit_points(self, step: float, n_levels: int, levels: Tensor) -> tuple[ReconstructionPoints, float]:
        """Reconstruction points from levels of the trial rows, and an estimate of the section's error."""
        of, scale = self.trial_rows, self.scale(step)
        (count, total), squared = self.kernels.ems_level_sums(
            self.trial_elements, levels, of.shape, of.rows, scale, n_levels, self.activities(n_levels)
        )
        # The mean distance from the level's centre, rounded to the nearest integer.
        beyond = total - count * level_centres(n_levels)
        offsets = (2 * beyond + count) // (2 * np.maximum(count, 1))
        offsets = np.minimum(np.maximum(offsets, -127), 127)
        if self.negative:
            offsets[:, 0] = 0  # positive and negative elements cancel
        y = level_centres(n_levels) + offsets
        left = float(squared + (y * (count * y - 2 * total)).sum()) / scale**2
        points = ReconstructionPoints(float(np.float32(step)), offsets.astype(np.int8))
        return points, left * (self.shape.d / of.counted)

    def section(self, mask: Mask, points: ReconstructionPoints | None) -> bytes:
        """The section's bytes. The mask is entropy-coded or stored, whichever is smaller."""
        coded, words = self.kernels.ems_rans_encode(mask.levels, mask.contexts, self.shape, mask.tables)
        tops = (self.count, self.low, self.width)
        coding = (mask.model, mask.tables, tuple(words))
        header = SectionHeader(mask.n_levels, *tops, points, *coding, self.stochastic)
        first, width = header.to_bytes(), mask.n_levels.bit_length()
        excess = len(first) + len(coded) - -(-self.shape.d * width // 8)  # over a stored mask
        if excess >= 0 and excess >= len(plain := replace(header, model=None).to_bytes()):
            first, coded = plain, self.pack(mask.levels, width)
        signs = self.kernels.ems_pack_signs(self.x, mask.levels, mask.n_levels) if self.signed else b""
        body = b"".join([first, self.top_stream, coded, signs])
        return varint(len(body)) + body


def as_float(raw: int, values: int) -> float:
    """The number with these bits, in a type of values (0 float32, 1 float16, 2 bfloat16)."""
    if values == 1:
        return float(np.array(raw, np.uint16).view(np.float16))
    return float(np.array(raw if values == 0 else raw << 16, np.uint32).view(np.float32))


def as_floats(raw: Array, values: int) -> Array:
    """The numbers with these bits, as float32."""
    if values == 0:
        return raw.astype(np.uint32).view(np.float32)
    if values == 1:
        return raw.astype(np.uint16).view(np.float16).astype(np.float32)
    widened: Array = widened_bfloat16(raw)
    return widened
