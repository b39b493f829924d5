"""From a wish, so many bytes or so little error, to a step between levels."""

import math
from collections.abc import Callable

from cutlayer.codecs.entropy.model import Model
from cutlayer.codecs.entropy.section import MOST_LEVELS
from cutlayer.codecs.entropy.writer import Mask, SectionWriter

_TRIES = 6
_CLOSE = 0.004  # a wish counts as met within this share


def with_levels(writer: SectionWriter, levels: int, rounding: str) -> bytes:
    """The section with so many levels, evenly up to Topmin."""
    if rounding == "mean":
        mask = writer.at_step(writer.topmin / (levels - 0.5) if writer.topmin > 0 else 1.0)
        return writer.section(mask, writer.means(mask)[0])
    found = writer.kernels.ems_equal_levels(writer.x, writer.topmin, levels, rounding == "nearest")
    return writer.section(writer.marked(0.0, levels, found), None)


def within_bytes(writer: SectionWriter, budget: int) -> tuple[bytes, int]:
    """The section of least error that takes at most so many bytes, or the smallest; and its levels."""
    if writer.topmin == 0:
        mask = writer.at_step(1.0)
        return writer.section(mask, writer.means(mask)[0]), mask.most
    model = _first_model(writer)
    step = _seek(lambda s: writer.trial(s, model).bytes, budget * (1 - _CLOSE / 2), writer.topmin)
    best: tuple[bytes, int] | None = None
    for _ in range(_TRIES):
        mask = writer.at_step(step)
        if mask.bytes <= budget:
            made = writer.section(mask, writer.means(mask)[0])
            if len(made) <= budget:
                best = made, mask.most
                break
        if mask.most == 1:
            return writer.section(mask, writer.means(mask)[0]), 1
        # Bits fall by less than one a doubling, so this is a little more than needed.
        step *= 1.002 + 2 * max(0.0, mask.bytes / budget - 1)
    if best:
        return best
    mask = writer.at_step(writer.topmin * 2)
    return writer.section(mask, writer.means(mask)[0]), mask.most


def within_error(writer: SectionWriter, most: float) -> tuple[bytes, int] | None:
    """The smallest section whose squared error is at most so much; none if no number of levels reaches it."""
    if writer.topmin == 0:
        mask = writer.at_step(1.0)
        return writer.section(mask, writer.means(mask)[0]), mask.most
    model = _first_model(writer)
    share = writer.shape.d / writer.part_shape.d

    def error(step: float) -> float:
        return -writer.means(writer.trial(step, model))[1] * share

    step = _seek(error, -most * (1 - _CLOSE), writer.topmin)
    for _ in range(4 * _TRIES):
        mask = writer.at_step(step)
        means, left = writer.means(mask, whole=True)
        # A part of a step is how exactly elements are measured: allow for it.
        if left * 1.001 <= most:
            return writer.section(mask, means), mask.most
        if mask.most == MOST_LEVELS:
            return None
        step *= 0.998 * min(1.0, (most / left) ** 0.5)
    return None


def _first_model(writer: SectionWriter) -> Model:
    return writer.trial(writer.topmin / 3).model


def _seek(value: Callable[[float], float], target: float, topmin: float) -> float:
    """The step at which a value that falls as the step grows comes to the target, nearly.

    Over the logarithm of the step it is nearly a line, so that a few secants find it.
    """
    low, high = math.log(topmin / (MOST_LEVELS - 0.5)), math.log(topmin * 2)
    at, before, known = math.log(topmin / 3), 0.0, math.nan
    for _ in range(_TRIES):
        found = value(math.exp(at))
        if abs(found - target) <= _CLOSE / 2 * abs(target):
            break
        low, high = (max(low, at), high) if found > target else (low, min(high, at))
        slope = (found - known) / (at - before) if not math.isnan(known) and at != before else -abs(found)
        before, known = at, found
        guess = at + (target - found) / slope if slope < 0 else (low + high) / 2
        at = min(max(guess, low), high)
        if abs(at - before) < 1e-3:
            break
    return math.exp(at)
