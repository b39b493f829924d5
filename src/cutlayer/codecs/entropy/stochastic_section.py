"""Encode one section of an `ems` payload by stochastic rounding, which is unbiased (FORMAT.md, "ems").

The mean of a decoded element is the element: the step is chosen before anything is rounded, and from other
random numbers than those that round. So neither a dead zone, nor means of levels, nor a second try because
of the size, can pull it to one side.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs.base import Writer
from cutlayer.codecs.entropy.layout import MAX_LEVELS, multiples
from cutlayer.codecs.entropy.rate_control import Encoded, secant_search
from cutlayer.codecs.entropy.section_shape import SectionShape
from cutlayer.codecs.entropy.section_writer import MAX_STEP, MIN_STEP, Mask, SectionWriter, as_float
from cutlayer.codecs.tensors import Tensor, count, host
from cutlayer.errors import RangeError

# Streams of random words (FORMAT.md, "Randomness"): for the levels that are sent, and for trials of steps.
ROUNDING, _TRIAL = 4, 5
_MAX_STEPS = 1 << 22  # no element is more steps large: its level and the next are then exact in float32
_BEYOND_TOPMIN = 1.5  # levels reach so far beyond the smallest top value
_TARGET = 0.99  # the share of a budget that is aimed at, at most
_TOLERANCE = 0.02  # how far below it a step may be: closer would cost time, and sizes vary anyway
_STEP_RANGE = 7.0  # |log(step / spread)| of the steps that are tried


class StochasticSection(SectionWriter):
    """The elements of one section, rounded to multiples of a step, up or down at random."""

    stochastic = True

    def __init__(
        self, x: Tensor, top: Any, row: int, signed: bool, shape: SectionShape, writer: Writer
    ) -> None:
        super().__init__(x, top, row, 0, signed, shape, writer.kernels)
        self.draw, self.dtype = (writer.seed, row), writer.source.dtype
        self.spread = math.sqrt(self.kernels.ems_energy(self.x) / shape.d)  # the root of the mean square
        self.largest = as_float(int(self.top_magnitudes.max()), 0)

    def nearest_step(self, step: float) -> float:
        """The step as a float32, within the range that the format allows and the elements need."""
        return float(np.float32(min(max(step, MIN_STEP, self.largest / _MAX_STEPS), MAX_STEP)))

    @staticmethod
    def scale(step: float) -> float:
        """The factor from magnitudes to steps, as a float32."""
        return float(np.float32(1 / step))

    def levels_up_to_topmin(self, step: float) -> int:
        """How many levels are coded without a mark: somewhat more than reach the smallest top value."""
        return max(1, min(MAX_LEVELS, math.ceil(_BEYOND_TOPMIN * self.topmin / step)))

    def rounded(self, elements: Tensor, step: float, n_levels: int, stream: int) -> Tensor:
        """Levels of elements, at random by a stream of words; from `n_levels` on they get the mark."""
        seed, row = self.draw
        return self.kernels.ems_quantize_stochastically(
            elements, self.scale(step), n_levels, seed, stream, row
        )

    def top_levels(self, levels: Tensor, step: float, n_levels: int) -> NDArray[Any]:
        """The levels behind the marks (int64), with the signs of their elements."""
        seed, row = self.draw
        how = (self.scale(step), n_levels, seed, ROUNDING, row)
        return self.kernels.ems_stochastic_tops(self.x, levels, *how)

    def activities(self, n_levels: int) -> int:
        """See `SectionWriter`. No reconstruction points are stored."""
        return 0

    def _quantize_subset(self, step: float, elements: Tensor) -> tuple[float, int, Tensor]:
        """See `SectionWriter`. Rounded with random words that the sent levels do not use."""
        step = self.nearest_step(step)
        n_levels = self.levels_up_to_topmin(step)
        return step, n_levels, self.rounded(elements, step, n_levels, _TRIAL)

    def estimate(self, step: float) -> Mask:
        """See `SectionWriter`. Top values are as many as the trial has."""
        step, n_levels, levels = self._quantize_subset(step, self.trial_elements)
        share = np.count_nonzero(host(levels) == n_levels) / count(levels)
        width = max(0, math.ceil(self.largest / step) - n_levels).bit_length() + self.signed
        self.top_stream = bytes(math.ceil(share * self.shape.d * width / 8))
        return self.make_mask(step, n_levels, levels, self.trial_rows, self.model_for(step))

    def within_bytes(self, budget: int) -> Encoded:
        """About `budget` bytes. The size is a target: no step is given up because of what was rounded."""
        if self.spread == 0 or budget <= 0:
            return self.at_step(self.largest or 1.0)
        known = math.log(self.spread)
        at, _ = secant_search(
            lambda u: math.log(self.estimate(math.exp(u)).bytes),
            math.log(_TARGET * budget),
            (known - _STEP_RANGE, known + _STEP_RANGE),
            known,
            -0.8,
            _TOLERANCE,
        )
        return self.at_step(math.exp(at))

    def at_step(self, step: float, n_levels: int = 0) -> Encoded:
        """The section at a step; `n_levels`: levels that are coded without a mark."""
        step = self.nearest_step(step)
        if self.largest + step > self.dtype.largest:
            raise RangeError(
                f"a value as large as {self.largest:g} may be rounded up beyond what {self.dtype} holds; "
                "scale the tensor"
            )
        n_levels = n_levels or self.levels_up_to_topmin(step)
        levels = self.rounded(self.x, step, n_levels, ROUNDING)
        self._keep_tops(self.top_levels(levels, step, n_levels))
        model = self._fit_model(n_levels, self.trial_subset(levels), self.trial_rows)
        mask = self.make_mask(step, n_levels, levels, self.all_rows, model)
        return self.section(mask, multiples(step, n_levels)), n_levels

    def _keep_tops(self, levels: NDArray[Any]) -> None:
        """Top values are levels, too: those that are too high to be coded with the others."""
        self.count, self.low, self.width, self.top_stream = levels.size, 0, 0, b""
        if self.count:
            magnitudes: NDArray[Any] = abs(levels)
            self.low = int(magnitudes.min())
            self.width = (int(magnitudes.max()) - self.low).bit_length()
            code: NDArray[Any] = magnitudes - self.low
            code = code << 1 | (levels < 0) if self.signed else code
            self.top_stream = self.pack(code, self.width + self.signed)
