"""One section of an `ems` payload, from elements to bytes, once the step between levels is known."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutlayer.codecs.entropy.context_model import Model
from cutlayer.codecs.entropy.frequency_tables import COST_BITS, Tables
from cutlayer.codecs.entropy.layout import (
    MOST_LEVELS,
    PARTS,
    SURROUNDINGS,
    Means,
    Section,
    head,
    middle,
    varint,
)
from cutlayer.codecs.entropy.least_squares import worth_rows
from cutlayer.codecs.entropy.section_shape import Geometry
from cutlayer.codecs.entropy.trial_rows import Part, part, whole
from cutlayer.codecs.kernels.dispatch import Kernels
from cutlayer.codecs.tensors import VALUE_DTYPES

ZERO_BELOW, UP_FROM = 38, 35  # parts at which level 1 begins, and every further one
LEAST_STEP, MOST_STEP = 2.0**-120, 2.0**119  # so that parts of a step, and many steps, stay float32
_OTHER = 0.4  # steps so far apart, in their logarithms, have other weights
_FEW = 1 << 15  # elements below which surroundings are not told apart
_FINE = 16  # levels above which they are not, either
_LANE_BYTES = 3  # what a lane costs beyond what its levels carry, on average

Array = NDArray[Any]


@dataclass(frozen=True)
class Mask:
    """Levels with their statistics, ready to be coded."""

    step: float
    most: int  # levels; a top value's mark is the next number
    levels: Tensor
    contexts: Tensor
    model: Model
    tables: Tables
    bytes: float  # an estimate of the section's size


class SectionWriter:
    """What does not depend on the step: elements, top values, and a part of them to try steps on."""

    doubt = 2.0  # bits that a part saves by each weight because this was fitted to it, and others do not

    def __init__(
        self, x: Tensor, top: Any, row: int, values: int, signed: bool, shape: Geometry, kernels: Kernels
    ) -> None:
        self.x, self.signed, self.shape, self.kernels = x[row], signed, shape, kernels
        raw, self.where = kernels.ems_tops(x, top, row, values)
        bit = 31 if values == 0 else 15
        self.tops = raw & ((1 << bit) - 1)  # bits of magnitudes
        low, high = torch.aminmax(self.tops)
        self.count, self.low = self.tops.numel(), int(low)
        self.width = (int(high) - self.low).bit_length()
        code = self.tops - self.low
        self.values = self.packed(code << 1 | raw >> bit if signed else code, self.width + signed)
        self.topmin = as_float(self.low, values)
        self.first_step = self.topmin / 3  # where a search begins
        self.whole, self.part = whole(shape), part(shape)
        self.some = self.spread(self.x)
        self.threshold = float(top.topmin[row])
        self.known: tuple[float, Model] | None = None

    @cached_property
    def negative(self) -> bool:
        """Whether there are negative elements."""
        return self.signed and bool(self.x.min() < 0)

    def spread(self, elements: Tensor) -> Tensor:
        """The part of the elements on which steps are tried."""
        if self.part.where is None:
            return elements
        return self.kernels.ems_strips(elements, self.shape, self.part.where, self.part.shape.height)

    def packed(self, codes: Tensor, width: int) -> bytes:
        """A bit stream."""
        return bytes(self.kernels.ems_pack(codes, width)) if width and codes.numel() else b""

    @staticmethod
    def scale(step: float) -> float:
        """Parts in a unit, as a float32."""
        return float(np.float32(PARTS / step))

    def most_levels(self, step: float) -> int:
        """Levels up to the one of Topmin."""
        parts = round(min(16383.0, float(np.float32(self.topmin) * np.float32(self.scale(step)))))
        return min(
            MOST_LEVELS, 1 + (max(1, (parts + PARTS - UP_FROM) // PARTS) if parts >= ZERO_BELOW else 0)
        )

    def trial(self, step: float) -> Mask:
        """What the mask would be like, from a part of the elements."""
        return self.measured(*self._tried(step, self.some), self.part, self.model_near(step))

    def trial_error(self, step: float) -> float:
        """The squared error that levels a step apart would leave, from a part of the elements."""
        return self._means(*self._tried(step, self.some))[1]

    def model_near(self, step: float) -> Model:
        """Weights for levels a step apart, or for other levels: they hardly depend on the step, unless it is
        another one altogether."""
        if self.known is None or abs(math.log(step / self.known[0])) > _OTHER:
            self.known = step, self.fitted(step)
        return self.known[1]

    def fitted(self, step: float) -> Model:
        """Weights for levels a step apart, from a part of the elements."""
        _, most, levels = self._tried(step, self.some)
        return self._fitted(most, levels, self.part)

    def _tried(self, step: float, elements: Tensor) -> tuple[float, int, Tensor]:
        step = min(max(step, LEAST_STEP), MOST_STEP)
        most = self.most_levels(step)
        # Ties at the threshold are all marked here, which is near enough.
        return step, most, self.kernels.ems_levels(elements, self.scale(step), most, self.threshold)

    def _fitted(self, most: int, levels: Tensor, of: Part) -> Model:
        return self.kernels.ems_fit(levels, of.shape, of.rows, most, worth_rows(self.shape))

    def levels_at(self, step: float, most: int = 0) -> tuple[float, int, Tensor]:
        """Levels a step apart, with top values marked; `most` of them, if that is given."""
        step = min(max(step, LEAST_STEP), MOST_STEP)
        most = most or self.most_levels(step)
        levels = self.kernels.ems_levels(self.x, self.scale(step), most, math.inf)
        return step, most, self._with_marks(levels, most)

    def at_step(self, step: float, model: Model | None = None, most: int = 0) -> Mask:
        """The mask with levels a step apart."""
        return self.measured(*self.levels_at(step, most), self.whole, model)

    def marked(self, most: int, levels: Tensor) -> Mask:
        """The mask of levels without a step, and the top values."""
        return self.measured(0.0, most, self._with_marks(levels, most), self.whole)

    def _with_marks(self, levels: Tensor, most: int) -> Tensor:
        if levels.is_cuda:
            return levels.index_fill_(0, self.where, most)
        levels.numpy()[self.where.numpy()] = most  # many times faster than torch
        return levels

    def measured(self, step: float, most: int, levels: Tensor, of: Part, model: Model | None = None) -> Mask:
        """Levels with their statistics."""
        model = model or self._fitted(most, levels, of)
        contexts, histogram = self.kernels.ems_contexts(levels, of.shape, of.rows, model, most)
        # As many classes as all elements are worth, also if these are only a part of them.
        times = round(self.shape.d / of.counted)
        found, cost = self.kernels.ems_tables(histogram * times if times > 1 else histogram)
        bits = cost / (1 << COST_BITS) / times + (int(histogram[:, 1:most].sum()) if self.signed else 0)
        if of.where is not None:
            bits += self.doubt * (model.weights.size + model.distance.size) + found.frequencies.size
        # Frequencies take one byte or two; the rest is small.
        about = 40 + len(self.values) + self.kinds(most) * most + 3 * self.shape.blocks
        about += self.model_size(model) + len(found.starts) * (1 + 3 * most // 2)
        size = bits * (self.shape.d / of.counted) / 8 + _LANE_BYTES * self.shape.lanes + about
        return Mask(step, most, levels, contexts, model, found, size)

    def model_size(self, model: Model) -> int:
        """About how many bytes a model takes."""
        return model.weights.size + 2 * model.distance.size

    def kinds(self, most: int) -> int:
        """How many surroundings are told apart: none where tables would cost more than they save."""
        return SURROUNDINGS if self.shape.d >= _FEW and 1 < most <= _FINE else 1

    def means(self, step: float, most: int, levels: Tensor) -> Means:
        """Where levels are decoded to, from a part of the elements."""
        return self._means(step, most, self.spread(levels))[0]

    def error(self, step: float, most: int, levels: Tensor, means: Means) -> float:
        """The squared error of levels that are decoded to these means."""
        scale = self.scale(step)
        return self.kernels.ems_error(self.x, levels, self.shape, scale, means.parts()) / scale**2

    def _means(self, step: float, most: int, levels: Tensor) -> tuple[Means, float]:
        """From levels of the part; and the squared error that they seem to leave of all."""
        of, scale = self.part, self.scale(step)
        (count, total), squared = self.kernels.ems_sums(
            self.some, levels, of.shape, of.rows, scale, most, self.kinds(most)
        )
        # From the middle of a level; half a part more, rounded down, is the nearest integer to the mean.
        beyond = total - count * middle(most)
        offsets = (2 * beyond + count) // (2 * np.maximum(count, 1))
        offsets = np.minimum(np.maximum(offsets, -127), 127)
        if self.negative:
            offsets[:, 0] = 0  # what lies around zero is zero
        y = middle(most) + offsets
        left = float(squared + (y * (count * y - 2 * total)).sum()) / scale**2
        return Means(float(np.float32(step)), offsets.astype(np.int8)), left * (self.shape.d / of.counted)

    def section(self, mask: Mask, means: Means | None) -> bytes:
        """The section, with the mask coded or stored, whichever is smaller."""
        coded, words = self.kernels.ems_encode(mask.levels, mask.contexts, self.shape, mask.tables)
        what = Section(
            mask.most, self.count, self.low, self.width, means, mask.model, mask.tables, tuple(words)
        )
        first, width = head(what), mask.most.bit_length()
        more = len(first) + len(coded) - -(-self.shape.d * width // 8)  # than a mask that is stored
        if more >= 0 and more >= len(plain := head(replace(what, model=None))):
            first, coded = plain, self.packed(mask.levels.long(), width)
        signs = self.kernels.ems_signs(self.x, mask.levels, mask.most) if self.signed else b""
        body = b"".join([first, self.values, coded, signs])
        return varint(len(body)) + body


def as_float(raw: int, values: int) -> float:
    """The number with these bits of a value's type."""
    if values == 1:
        return float(np.array(raw, np.uint16).view(np.float16))
    return float(np.array(raw if values == 0 else raw << 16, np.uint32).view(np.float32))


def as_floats(raw: Tensor, values: int) -> Tensor:
    """The same for many."""
    if values == 0:
        return raw.to(torch.int32).view(torch.float32)
    return raw.to(torch.int16).view(VALUE_DTYPES[values]).float()
