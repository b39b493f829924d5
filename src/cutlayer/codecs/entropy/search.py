"""From a wish, so many bytes or so little error, to a step between levels."""

import math
from collections.abc import Callable

from cutlayer.codecs.entropy.model import Model
from cutlayer.codecs.entropy.section import MOST_LEVELS, Means
from cutlayer.codecs.entropy.writer import Mask, SectionWriter

_TRIES = 6
_CLOSE = 0.006  # a wish counts as met within this share
Made = tuple[bytes, int]  # a section and its levels


def with_levels(writer: SectionWriter, levels: int, rounding: str) -> bytes:
    """The section with so many levels, evenly up to Topmin."""
    if rounding == "mean":
        step = writer.topmin / (levels - 0.5) if writer.topmin > 0 else 1.0
        return _made(writer, writer.at_step(step, most=levels))[0]
    found = writer.kernels.ems_equal_levels(writer.x, writer.topmin, levels, rounding == "nearest")
    return writer.section(writer.marked(0.0, levels, found), None)


def within_bytes(writer: SectionWriter, budget: int) -> Made:
    """The section of least error that takes at most so many bytes, or else a very small one."""
    if writer.topmin == 0 or budget <= 0:
        return _smallest(writer)
    first = writer.trial(writer.first_step)
    step = _for_bytes(writer, first, budget * (1 - _CLOSE))
    model = _model_near(writer, first, step)
    moved = math.log(step / first.step)
    slope = math.log(budget / first.bytes) / moved if abs(moved) > 0.1 else -0.8
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
        step *= max(0.5, mask.bytes / (budget * (1 - _CLOSE))) ** (1 / min(max(-slope, 0.4), 1.5))
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
    first = writer.trial(writer.first_step)
    share = writer.shape.d / writer.part_shape.d
    low, high = _range(writer)
    # Over the logarithm of levels a unit, so that errors fall.
    found = _seek(
        lambda u: math.log(max(1e-300, writer.means(writer.trial(math.exp(-u), first.model))[1] * share)),
        math.log(most),
        (-high, -low),
        -math.log(writer.first_step),
        -2.0,
    )
    step = math.exp(-found)
    model = _model_near(writer, first, step)
    best: tuple[Mask, Means] | None = None
    for _ in range(4 * _TRIES):
        mask = writer.at_step(step, model)
        means, left = writer.means(mask, whole=True)
        # A part of a step is how exactly elements are measured: allow for it.
        if left * 1.001 <= most:
            if best and mask.bytes >= best[0].bytes:
                break
            near = best is not None or left >= (1 - 3 * _CLOSE) * most
            best = mask, means
            if near:
                break
            step *= (
                (0.997 * most / left) ** 0.5 if left > 0 else 2.0
            )  # the part made it look worse than it is
        elif best or mask.most == MOST_LEVELS:
            break
        else:
            step *= 0.998 * min(1.0, (most / left) ** 0.5)
    return (writer.section(*best), best[0].most) if best else None


def _made(writer: SectionWriter, mask: Mask) -> Made:
    return writer.section(mask, writer.means(mask)[0]), mask.most


def _smallest(writer: SectionWriter) -> Made:
    """Only zeros and top values."""
    return _made(writer, writer.at_step(2 * writer.topmin if writer.topmin > 0 else 1.0))


def _model_near(writer: SectionWriter, known: Mask, step: float) -> Model:
    """Weights hardly depend on the step, unless it is another one altogether."""
    return known.model if abs(math.log(step / known.step)) < 0.8 else writer.trial(step).model


def _range(writer: SectionWriter) -> tuple[float, float]:
    """The logarithms of the steps that make sense: from the most levels to one."""
    return math.log(writer.topmin / (MOST_LEVELS - 0.5)), math.log(writer.topmin * 2)


def _for_bytes(writer: SectionWriter, known: Mask, budget: float) -> float:
    def size(at: float) -> float:
        return math.log(writer.trial(math.exp(at), known.model).bytes)

    # From what is known, a first guess by the usual slope.
    guess = math.log(known.step) + math.log(known.bytes / budget) / 0.8
    low, high = _range(writer)
    return math.exp(_seek(size, math.log(budget), (low, high), min(max(guess, low), high), -0.8))


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
