"""Rate control: find the quantizer step that meets a byte budget or an error bound, and encode with it."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cutlayer.codecs.entropy.layout import MAX_LEVELS, ReconstructionPoints
from cutlayer.codecs.entropy.section_writer import Mask, SectionWriter
from cutlayer.codecs.tensors import Tensor

_TRIES = 6
_REFINEMENTS = 2  # passes over all elements, at most, once the error bound is met
_TOLERANCE = 0.006  # a target counts as met within this share of it
_LOW_RATE = 0.4  # bits an element
_SAME_POINTS = 0.05  # steps within this share of each other use the same reconstruction points
Encoded = tuple[bytes, int]  # a section, and its number of levels


def with_levels(writer: SectionWriter, levels: int, rounding: str) -> bytes:
    """Encode with a given number of levels, evenly spaced up to the smallest top value."""
    if rounding == "mean":
        step = writer.topmin / (levels - 0.5) if writer.topmin > 0 else 1.0
        return _encode(writer, writer.mask_at(step, n_levels=levels))[0]
    found = writer.kernels.ems_quantize_evenly(writer.x, writer.topmin, levels, rounding == "nearest")
    return writer.section(writer.mask_from(levels, found), None)


def with_step(writer: SectionWriter, step: float) -> Encoded:
    """Encode with a given step; one that would make more than the most levels is enlarged."""
    if writer.topmin == 0:
        return _smallest(writer)
    return _encode(writer, writer.mask_at(max(step, writer.topmin / (MAX_LEVELS - 0.5))))


def within_bytes(writer: SectionWriter, budget: int) -> Encoded:
    """The section of least error in at most `budget` bytes; if none is found, the smallest section."""
    if writer.topmin == 0 or budget <= 0:
        return _smallest(writer)
    if writer.has_many_channels and budget < _LOW_RATE * writer.shape.d / 8:
        # A channel chooses its parents among many. Most levels are zero, so a fit to them sees too little to
        # choose by: one fit at a small step serves all others.
        writer.first_step, writer.model_range = min(writer.first_step, writer.topmin / 6), math.inf
    step, slope = _step_for_bytes(writer, budget * (1 - 1.5 * _TOLERANCE))
    model = writer.model_for(step)
    wanted = budget * (1 - _TOLERANCE)
    fitting: Mask | None = None
    too_large: Mask | None = None
    for _ in range(_TRIES):
        mask = writer.mask_at(step, model)
        if mask.bytes > budget:
            too_large = mask
        elif fitting and mask.bytes <= fitting.bytes:
            break
        else:
            fitting = mask
        if fitting and (fitting.bytes >= budget * (1 - 4 * _TOLERANCE) or fitting.n_levels == MAX_LEVELS):
            break
        if fitting and too_large:
            # In between: log size is nearly linear in log step.
            part = math.log(fitting.bytes / wanted) / math.log(fitting.bytes / too_large.bytes)
            step = fitting.step * (too_large.step / fitting.step) ** part
        elif mask is too_large and mask.n_levels == 1:
            break
        else:
            # The slope is that of the trial rows, which are not quite like the whole section.
            step *= max(0.5, mask.bytes / wanted) ** (1 / min(max(-slope, 0.4), 2.5))
    if fitting:
        encoded = _encode(writer, fitting)
        if len(encoded[0]) <= budget:
            return encoded
        # The estimate of the size was too low.
        encoded = _encode(writer, writer.mask_at(1.05 * fitting.step, model))
        if len(encoded[0]) <= budget:
            return encoded
    return _smallest(writer)


def within_error(writer: SectionWriter, bound: float) -> Encoded | None:
    """The smallest section whose squared error is at most `bound`; None if even the most levels exceed it."""
    if writer.topmin == 0:
        return _smallest(writer)
    if bound <= 0:
        return None
    low, high = _step_range(writer)
    # The search is over u = -log(step), so that the error falls.
    found, slope = secant_search(
        lambda u: math.log(max(1e-300, writer.estimate_error(math.exp(-u)))),
        math.log(bound * (1 - _TOLERANCE)),
        (-high, -low),
        -math.log(writer.first_step),
        -2.0,
    )
    step, last, best_error = math.exp(-found), (0.0, 0.0), -1.0
    best: tuple[tuple[float, int, Tensor], ReconstructionPoints] | None = None
    points: ReconstructionPoints | None = None
    fitted_at = 0.0  # the step to which the points were fitted
    for i in range(4 * _TRIES):
        levels = writer.quantize(step)
        # Relative to the step, reconstruction points hardly depend on it.
        if points and abs(step / fitted_at - 1) < _SAME_POINTS and levels[1] == points.offsets.shape[1]:
            points = replace(points, step=float(np.float32(levels[0])))
        else:
            points, fitted_at = writer.fit_points(*levels), step
        error = writer.error(*levels, points)
        # A margin for the precision of 1/64 of a step, with which the error is measured. The rounding errors
        # of few elements do not average out.
        fits = error * 1.001 <= bound and writer.error_of_few(*levels, points) <= bound
        if fits and error > best_error:
            best, best_error = (levels, points), error
            if error >= (1 - 3 * _TOLERANCE) * bound:
                break
        if not fits and levels[1] == MAX_LEVELS:
            break
        if best and i >= _REFINEMENTS:
            break
        if error > 0:
            # The trial rows gave only an estimate. Two errors of the whole section give the slope.
            here = math.log(step), math.log(error)
            if i and abs(here[0] - last[0]) > 1e-4:
                slope = -(here[1] - last[1]) / (here[0] - last[0])
            last = here
            factor = ((1 - 1.5 * _TOLERANCE) * bound / error) ** (1 / min(max(-slope, 0.5), 2.0))
        else:
            factor = 2.0
        step *= factor if fits else min(0.998, factor)
    if not best:
        return None
    mask = writer.make_mask(*best[0], writer.all_rows, writer.fit_model(best[0][0]))
    return writer.section(mask, best[1]), mask.n_levels


def _encode(writer: SectionWriter, mask: Mask) -> Encoded:
    points = writer.fit_points(mask.step, mask.n_levels, mask.levels)
    return writer.section(mask, points), mask.n_levels


def _smallest(writer: SectionWriter) -> Encoded:
    """The section with one level: zeros and top values."""
    return _encode(writer, writer.mask_at(2 * writer.topmin if writer.topmin > 0 else 1.0))


def _step_range(writer: SectionWriter) -> tuple[float, float]:
    """The logarithms of the smallest and the largest useful step: those of the most levels, and of one."""
    return math.log(writer.topmin / (MAX_LEVELS - 0.5)), math.log(writer.topmin * 2)


def _step_for_bytes(writer: SectionWriter, budget: float) -> tuple[float, float]:
    """The step whose estimated size meets the budget, and d log(size) / d log(step) there."""

    def size(at: float) -> float:
        return math.log(writer.estimate(math.exp(at)).bytes)

    # A first guess from one step and the usual slope.
    known = math.log(writer.first_step)
    guess = known + (size(known) - math.log(budget)) / 0.8
    low, high = _step_range(writer)
    at, slope = secant_search(size, math.log(budget), (low, high), min(max(guess, low), high), -0.8)
    return math.exp(at), slope


def secant_search(
    value: Callable[[float], float],
    target: float,
    within: tuple[float, float],
    first: float,
    slope: float,
    tolerance: float = _TOLERANCE,
) -> tuple[float, float]:
    """Where a falling function comes closest to the target without exceeding it, and its slope there.

    Returns the upper end of the range if the function exceeds the target everywhere. Log size and log error
    are nearly linear in log step, so a few secant steps suffice. Where the function jumps, bisection takes
    over.
    """
    (low, high), at = within, first
    known: list[tuple[float, float]] = []
    for i in range(3 * _TRIES):
        found = value(at)
        known.append((at, found))
        if target - tolerance <= found <= target or high - low < 1e-3:
            break
        low, high = (max(low, at), high) if found > target else (low, min(high, at))
        if len(known) > 1 and at != known[-2][0]:
            secant = (found - known[-2][1]) / (at - known[-2][0])
            slope = secant if secant < -0.05 else slope
        guess = at + (target - tolerance / 2 - found) / slope
        at = guess if low < guess < high and i < _TRIES else (low + high) / 2
    return min((t for t, v in known if v <= target), default=high), slope
