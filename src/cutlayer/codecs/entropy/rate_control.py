"""From a wish, so many bytes or so little error, to a step between levels."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from torch import Tensor

from cutlayer.codecs.entropy.layout import MOST_LEVELS, Means
from cutlayer.codecs.entropy.section_writer import Mask, SectionWriter

_TRIES = 6
_WHOLE = 2  # further looks at all elements, at most, once a wish is met
_CLOSE = 0.006  # a wish counts as met within this share
_NEAR = 0.05  # steps so close share their means
Made = tuple[bytes, int]  # a section and its levels


def with_levels(writer: SectionWriter, levels: int, rounding: str) -> bytes:
    """The section with so many levels, evenly up to Topmin."""
    if rounding == "mean":
        step = writer.topmin / (levels - 0.5) if writer.topmin > 0 else 1.0
        return _made(writer, writer.at_step(step, most=levels))[0]
    found = writer.kernels.ems_equal_levels(writer.x, writer.topmin, levels, rounding == "nearest")
    return writer.section(writer.marked(levels, found), None)


def within_bytes(writer: SectionWriter, budget: int) -> Made:
    """The section of least error that takes at most so many bytes, or else a very small one."""
    if writer.topmin == 0 or budget <= 0:
        return _smallest(writer)
    step, slope = _for_bytes(writer, budget * (1 - 1.5 * _CLOSE))
    model = writer.model_near(step)
    fitting: Mask | None = None
    for i in range(_TRIES):
        mask = writer.at_step(step, model)
        if mask.bytes <= budget:
            fitting = mask
            # The part on which steps are tried is not quite like the whole, but one correction is enough.
            if mask.bytes >= budget * (1 - 4 * _CLOSE) or mask.most == MOST_LEVELS or i > 1:
                break
        elif fitting or mask.most == 1:
            break  # with something that fits in hand, one step too far is the end
        step *= max(0.5, mask.bytes / (budget * (1 - _CLOSE))) ** (1 / min(max(-slope, 0.4), 2.5))
    if fitting:
        made = _made(writer, fitting)
        if len(made[0]) <= budget:
            return made
        made = _made(writer, writer.at_step(1.05 * fitting.step, model))  # the estimate was off
        if len(made[0]) <= budget:
            return made
    return _smallest(writer)


def within_error(writer: SectionWriter, most: float) -> Made | None:
    """The smallest section whose squared error is at most so much; none if no number of levels reaches it."""
    if writer.topmin == 0:
        return _smallest(writer)
    if most <= 0:
        return None
    low, high = _range(writer)
    # Over the logarithm of levels a unit, so that errors fall.
    found, slope = _seek(
        lambda u: math.log(max(1e-300, writer.trial_error(math.exp(-u)))),
        math.log(most * (1 - _CLOSE)),
        (-high, -low),
        -math.log(writer.first_step),
        -2.0,
    )
    step, last, used = math.exp(-found), (0.0, 0.0), -1.0
    best: tuple[tuple[float, int, Tensor], Means] | None = None
    means: Means | None = None
    measured = 0.0  # the step at which they were
    for i in range(4 * _TRIES):
        levels = writer.levels_at(step)
        # In parts of a step, means hardly depend on it.
        if means and abs(step / measured - 1) < _NEAR and levels[1] == means.offsets.shape[1]:
            means = replace(means, step=float(np.float32(levels[0])))
        else:
            means, measured = writer.means(*levels), step
        left = writer.error(*levels, means)
        # A part of a step is how exactly elements are measured: allow for it.
        fits = left * 1.001 <= most
        if fits and left > used:
            best, used = (levels, means), left
            if left >= (1 - 3 * _CLOSE) * most:
                break
        if not fits and levels[1] == MOST_LEVELS:
            break
        if best and i >= _WHOLE:
            break
        if left > 0:
            # The part made it look better or worse than it is; two of the whole tell how fast it grows.
            here = math.log(step), math.log(left)
            if i and abs(here[0] - last[0]) > 1e-4:
                slope = -(here[1] - last[1]) / (here[0] - last[0])
            last = here
            aim = ((1 - 1.5 * _CLOSE) * most / left) ** (1 / min(max(-slope, 0.5), 2.0))
        else:
            aim = 2.0
        step *= aim if fits else min(0.998, aim)
    if not best:
        return None
    mask = writer.measured(*best[0], writer.whole, writer.fitted(best[0][0]))
    return writer.section(mask, best[1]), mask.most


def _made(writer: SectionWriter, mask: Mask) -> Made:
    return writer.section(mask, writer.means(mask.step, mask.most, mask.levels)), mask.most


def _smallest(writer: SectionWriter) -> Made:
    """Only zeros and top values."""
    return _made(writer, writer.at_step(2 * writer.topmin if writer.topmin > 0 else 1.0))


def _range(writer: SectionWriter) -> tuple[float, float]:
    """The logarithms of the steps that make sense: from the most levels to one."""
    return math.log(writer.topmin / (MOST_LEVELS - 0.5)), math.log(writer.topmin * 2)


def _for_bytes(writer: SectionWriter, budget: float) -> tuple[float, float]:
    def size(at: float) -> float:
        return math.log(writer.trial(math.exp(at)).bytes)

    # From one step, a first guess by the usual slope.
    known = math.log(writer.first_step)
    guess = known + (size(known) - math.log(budget)) / 0.8
    low, high = _range(writer)
    at, slope = _seek(size, math.log(budget), (low, high), min(max(guess, low), high), -0.8)
    return math.exp(at), slope


def _seek(
    value: Callable[[float], float], target: float, within: tuple[float, float], first: float, slope: float
) -> tuple[float, float]:
    """Where a falling value comes to the target, nearly but not above it, or the upper end of the range; and
    how steeply it falls there.

    Logarithms of sizes and errors over those of steps are nearly lines, so that a few secants find the
    place. Where they jump, the interval that is left is halved.
    """
    (low, high), at = within, first
    known: list[tuple[float, float]] = []
    for i in range(3 * _TRIES):
        found = value(at)
        known.append((at, found))
        if target - _CLOSE <= found <= target or high - low < 1e-3:
            break
        low, high = (max(low, at), high) if found > target else (low, min(high, at))
        if len(known) > 1 and at != known[-2][0]:
            steeper = (found - known[-2][1]) / (at - known[-2][0])
            slope = steeper if steeper < -0.05 else slope
        guess = at + (target - _CLOSE / 2 - found) / slope
        at = guess if low < guess < high and i < _TRIES else (low + high) / 2
    return min((t for t, v in known if v <= target), default=high), slope
