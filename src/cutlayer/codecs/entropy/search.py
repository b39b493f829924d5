"""From a wish, so many bytes or so little error, to a step between levels."""

import math
from collections.abc import Callable

from cutlayer.codecs.entropy.model import Model
from cutlayer.codecs.entropy.section import MOST_LEVELS
from cutlayer.codecs.entropy.writer import Mask, SectionWriter

_TRIES = 6
_CLOSE = 0.004  # a wish counts as met within this share
Made = tuple[bytes, int]  # a section and its levels


def with_levels(writer: SectionWriter, levels: int, rounding: str) -> bytes:
    """The section with so many levels, evenly up to Topmin."""
    if rounding == "mean":
        return _made(writer, writer.at_step(writer.topmin / (levels - 0.5) if writer.topmin > 0 else 1.0))[0]
    found = writer.kernels.ems_equal_levels(writer.x, writer.topmin, levels, rounding == "nearest")
    return writer.section(writer.marked(0.0, levels, found), None)


def within_bytes(writer: SectionWriter, budget: int) -> Made:
    """The section of least error that takes at most so many bytes, or else a very small one."""
    if writer.topmin == 0 or budget <= 0:
        return _smallest(writer)
    step = _for_bytes(writer, _first_model(writer), budget, writer.topmin / 3)
    model = writer.trial(step).model
    best: Made | None = None
    for _ in range(_TRIES):
        mask = writer.at_step(step, model)
        if mask.bytes <= budget:
            made = _made(writer, mask)
            if len(made[0]) <= budget:
                best = made
                if len(made[0]) >= budget * (1 - 2 * _CLOSE):
                    break
        elif best or mask.most == 1:
            break  # with something that fits in hand, one step too far is the end
        # The part on which steps are tried is not quite like the whole: aim by how much it is off.
        step = _for_bytes(writer, model, budget * writer.trial(step, model).bytes / mask.bytes, step)
    return best or _smallest(writer)


def within_error(writer: SectionWriter, most: float) -> Made | None:
    """The smallest section whose squared error is at most so much; none if no number of levels reaches it."""
    if writer.topmin == 0:
        return _smallest(writer)
    if most <= 0:
        return None
    model = _first_model(writer)
    share = writer.shape.d / writer.part_shape.d
    low, high = _range(writer)
    # Over the logarithm of levels a unit, so that errors fall.
    found = _seek(
        lambda u: math.log(max(1e-300, writer.means(writer.trial(math.exp(-u), model))[1] * share)),
        math.log(most),
        (-high, -low),
        -math.log(writer.topmin / 3),
        -2.0,
    )
    step = math.exp(-found)
    model = writer.trial(step).model
    for _ in range(4 * _TRIES):
        mask = writer.at_step(step, model)
        means, left = writer.means(mask, whole=True)
        # A part of a step is how exactly elements are measured: allow for it.
        if left * 1.001 <= most:
            return writer.section(mask, means), mask.most
        if mask.most == MOST_LEVELS:
            return None
        step *= 0.998 * min(1.0, (most / left) ** 0.5)
    return None


def _made(writer: SectionWriter, mask: Mask) -> Made:
    return writer.section(mask, writer.means(mask)[0]), mask.most


def _smallest(writer: SectionWriter) -> Made:
    """Only zeros and top values."""
    return _made(writer, writer.at_step(2 * writer.topmin if writer.topmin > 0 else 1.0))


def _first_model(writer: SectionWriter) -> Model:
    return writer.trial(writer.topmin / 3).model


def _range(writer: SectionWriter) -> tuple[float, float]:
    """The logarithms of the steps that make sense: from the most levels to one."""
    return math.log(writer.topmin / (MOST_LEVELS - 0.5)), math.log(writer.topmin * 2)


def _for_bytes(writer: SectionWriter, model: Model, budget: float, first: float) -> float:
    def size(at: float) -> float:
        return math.log(writer.trial(math.exp(at), model).bytes)

    return math.exp(_seek(size, math.log(budget), _range(writer), math.log(first), -0.8))


def _seek(
    value: Callable[[float], float], target: float, within: tuple[float, float], first: float, slope: float
) -> float:
    """Where a falling value comes to the target, nearly but not above it, or the upper end of the range.

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
    return min((t for t, v in known if v <= target), default=high)
