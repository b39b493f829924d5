"""One section of an `ems` payload, from elements to bytes, once the step between levels is known."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutlayer.codecs.entropy.fit import worth_rows
from cutlayer.codecs.entropy.geometry import Geometry
from cutlayer.codecs.entropy.model import Model
from cutlayer.codecs.entropy.part import Part, part, whole
from cutlayer.codecs.entropy.section import MOST_LEVELS, PARTS, SURROUNDINGS, Means, Section, head, varint
from cutlayer.codecs.entropy.tables import COST_BITS, Tables
from cutlayer.codecs.kernels import Kernels
from cutlayer.codecs.tensors import VALUE_DTYPES

ZERO_BELOW, UP_FROM = 38, 35  # parts at which level 1 begins, and every further one
LEAST_STEP, MOST_STEP = 2.0**-120, 2.0**119  # so that parts of a step, and many steps, stay float32
_FITTED = 1 << 18  # elements from which weights are fitted
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

    def __init__(
        self, x: Tensor, top: Any, row: int, values: int, signed: bool, shape: Geometry, kernels: Kernels
    ) -> None:
        self.x, self.signed, self.shape, self.kernels = x[row], signed, shape, kernels
        raw, self.where = kernels.ems_tops(x, top, row, values)
        bit = 31 if values == 0 else 15
        self.tops = raw & ((1 << bit) - 1)  # bits of magnitudes
        self.count, self.low = self.tops.numel(), int(self.tops.min())
        self.width = int(self.tops.max() - self.low).bit_length()
        code = self.tops - self.low
        self.values = self.packed(code << 1 | raw >> bit if signed else code, self.width + signed)
        self.topmin = as_float(self.low, values)
        self.first_step = self.topmin / 3  # where a search begins
        self.whole, self.part = whole(shape), part(shape)
        self.some = self.spread(self.x)
        self.threshold = float(top.topmin[row])

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

    def trial(self, step: float, model: Model) -> Mask:
        """What the mask would be like, from a part of the elements."""
        return self.measured(*self._tried(step, self.some), self.part, model)

    def trial_error(self, step: float) -> float:
        """The squared error that levels a step apart would leave, from a part of the elements."""
        return self._means(*self._tried(step, self.some))[1]

    def fitted(self, step: float) -> Model:
        """Weights for levels a step apart, from some samples."""
        of, stride = self.shape.thinned(max(_FITTED, 4 * self.shape.sample))
        elements = self.x
        if stride > 1:
            size = self.shape.sample
            picked = elements[: self.shape.d // size * size].view(-1, size)[stride // 2 :: stride]
            # NumPy copies with one thread: torch would start several for less than they cost.
            elements = picked.reshape(-1) if picked.is_cuda else torch.from_numpy(picked.numpy().reshape(-1))
            of = replace(of, d=len(elements))
        _, most, levels = self._tried(step, elements)
        return self._fitted(most, levels, of)

    def _tried(self, step: float, elements: Tensor) -> tuple[float, int, Tensor]:
        step = min(max(step, LEAST_STEP), MOST_STEP)
        most = self.most_levels(step)
        # Ties at the threshold are all marked here, which is near enough.
        return step, most, self.kernels.ems_levels(elements, self.scale(step), most, self.threshold)

    def _fitted(self, most: int, levels: Tensor, shape: Geometry) -> Model:
        return self.kernels.ems_fit(levels, shape, most, worth_rows(self.shape))

    def levels_at(self, step: float, most: int = 0) -> tuple[float, int, Tensor]:
        """Levels a step apart, with top values marked; `most` of them, if that is given."""
        step = min(max(step, LEAST_STEP), MOST_STEP)
        most = most or self.most_levels(step)
        levels = self.kernels.ems_levels(self.x, self.scale(step), most, math.inf)
        return step, most, levels.index_fill_(0, self.where, most)

    def at_step(self, step: float, model: Model | None = None, most: int = 0) -> Mask:
        """The mask with levels a step apart."""
        return self.measured(*self.levels_at(step, most), self.whole, model)

    def marked(self, most: int, levels: Tensor) -> Mask:
        """The mask of levels without a step, and the top values."""
        return self.measured(0.0, most, levels.index_fill_(0, self.where, most), self.whole)

    def measured(self, step: float, most: int, levels: Tensor, of: Part, model: Model | None = None) -> Mask:
        """Levels with their statistics."""
        model = model or self._fitted(most, levels, of.shape)
        contexts, histogram = self.kernels.ems_contexts(levels, of.shape, of.rows, model, most)
        found, cost = self.kernels.ems_tables(histogram)
        bits = cost / (1 << COST_BITS) + (int(histogram[:, 1:most].sum()) if self.signed else 0)
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
        middle = np.arange(most) * PARTS
        # Half a part more, rounded down: the nearest integer to the mean.
        mean = np.where(count > 0, (2 * total + count) // (2 * np.maximum(count, 1)), middle)
        offsets = np.clip(mean - middle, -127, 127)
        if self.negative:
            offsets[:, 0] = 0  # what lies around zero is zero
        y = middle + offsets
        left = float(squared + (count * y * y - 2 * total * y).sum()) / scale**2
        return Means(float(np.float32(step)), offsets.astype(np.int8)), left * (self.shape.d / of.counted)

    def section(self, mask: Mask, means: Means | None) -> bytes:
        """The section, with the mask coded or stored, whichever is smaller."""
        coded, words = self.kernels.ems_encode(mask.levels, mask.contexts, self.shape, mask.tables)
        what = Section(
            mask.most, self.count, self.low, self.width, means, mask.model, mask.tables, tuple(words)
        )
        plain = replace(what, model=None)
        if len(head(what)) + len(coded) >= len(head(plain)) + -(-self.shape.d * mask.most.bit_length() // 8):
            what, coded = plain, self.packed(mask.levels.long(), mask.most.bit_length())
        signs = self.kernels.ems_signs(self.x, mask.levels, mask.most) if self.signed else b""
        body = b"".join([head(what), self.values, coded, signs])
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
