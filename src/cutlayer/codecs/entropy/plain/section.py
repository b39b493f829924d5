"""Encode one section of elements as an `ems` codec asks: at a rate, within an error, or with given levels.

The compiled kernels do the same in one call (native/ems/rate_control.cpp), and give the same bytes.
"""

import math
from dataclasses import dataclass
from typing import Any

from cutlayer.codecs.entropy import rate_control
from cutlayer.codecs.entropy.layout import MAX_LEVELS
from cutlayer.codecs.entropy.rate_control import Encoded
from cutlayer.codecs.entropy.section_shape import SectionShape
from cutlayer.codecs.entropy.section_writer import SectionWriter
from cutlayer.codecs.kernels.interface import Kernels
from cutlayer.codecs.tensors import Tensor

# The largest relative squared error of a top value through conversion to float32, float16 or bfloat16.
_CONVERSION_ERROR = (0.0, 2.0**-22, 2.0**-18)
_BUDGET_USED = 0.9  # a section that uses this share of its budget is good enough
_MAX_TOP_SHARE = 64  # while at most one element in so many is a top value, there may be four times as many


@dataclass(frozen=True)
class PlainTarget:
    """What a section of elements must meet: a budget in bytes, levels, a step or a relative squared error."""

    budget: int | None = None
    levels: int = 0
    step: float = 0.0
    error: float = 0.0
    rounding: str = "mean"


class PlainSection:
    """The elements of one section, and how to encode them. The number of top values may change."""

    def __init__(
        self, x: Tensor, top: Any, row: int, shape: SectionShape, values: int, signed: bool, kernels: Kernels
    ) -> None:
        self.x, self.values, self.kernels = x[row], values, kernels
        self.writer = SectionWriter(x, top, row, values, signed, shape, kernels)

    def encode(self, target: PlainTarget) -> Encoded | None:
        """The section; None if even the most levels and top values exceed the error."""
        writer = self.writer
        if target.levels:
            return rate_control.with_levels(writer, target.levels, target.rounding), target.levels
        if target.budget is not None:
            return self._within_bytes(target.budget)
        if target.step:
            spread = math.sqrt(self.kernels.ems_energy(self.x) / writer.shape.d)
            return rate_control.with_step(writer, target.step * spread)
        while not (found := rate_control.within_error(self.writer, self._error_bound(target.error))):
            if self.writer.count == writer.shape.d:
                return None
            # Even the most levels are too coarse: make more elements top values.
            self._make_tops(min(writer.shape.d, 4 * self.writer.count))
        return found

    def _within_bytes(self, budget: int) -> Encoded:
        """The section within a budget. The number of top values is adjusted to the budget."""
        best: Encoded | None = None
        while True:
            encoded, count = rate_control.within_bytes(self.writer, budget), self.writer.count
            if len(encoded[0]) <= budget and (best is None or len(encoded[0]) > len(best[0])):
                best = encoded
                # Bytes are left over at the most levels: spend them on more top values.
                spare = encoded[1] == MAX_LEVELS and len(encoded[0]) < _BUDGET_USED * budget
                if not spare or count > self.writer.shape.d // _MAX_TOP_SHARE:
                    return best
                count *= 4
            elif best or count == 1:
                return best or encoded
            else:
                count = max(1, count // 4)
            self._make_tops(count)

    def _make_tops(self, count: int) -> None:
        """From now on, so many elements are top values."""
        x, old = self.x.reshape(1, -1), self.writer
        again = self.kernels.select_top(x, count)
        self.writer = SectionWriter(x, again, 0, self.values, old.signed, old.shape, self.kernels)

    def _error_bound(self, error: float) -> float:
        """The squared error that the mask may have, after the conversion of top values has taken its part."""
        total = self.kernels.ems_energy(self.x)
        return (error - _CONVERSION_ERROR[self.values]) * total - self.writer.count * (
            2.0**-50 if self.values == 1 else 0.0
        )
