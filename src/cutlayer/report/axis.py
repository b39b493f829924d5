"""Linear and logarithmic axes: the position of a value, and the ticks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`, linear or logarithmic, with its ticks."""

    low: float
    high: float
    log: bool
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        """The position of a value: 0 at the low end of the axis, 1 at its high end."""
        f: Callable[[float], float] = math.log10 if self.log else float
        return (f(value) - f(self.low)) / (f(self.high) - f(self.low))

    def fits(self, value: float | None) -> bool:
        """Whether the axis can show the value."""
        return value is not None and math.isfinite(value) and not (self.log and value <= 0)


def scale_of(values: Iterable[float | None], log: bool, from_zero: bool = False) -> Scale:
    """An axis that shows all values. With `from_zero` it begins or ends there, as bars must."""
    found = [v for v in values if v is not None and math.isfinite(v) and not (log and v <= 0)]
    if not found:
        found = [1.0, 10.0] if log else [0.0, 1.0]
    if log:
        return _logarithmic(min(found), max(found))
    low, high = min(found), max(found)
    if from_zero:
        low, high = min(0.0, low), max(0.0, high)
    if low == high:
        low, high = low - (abs(low) / 2 or 1), high + (abs(high) / 2 or 1)
    step = _nice((high - low) / 5)
    if all(isinstance(value, int) for value in found):
        step = max(1.0, math.ceil(step))
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    ticks = tuple(round(low + i * step, 12) for i in range(round((high - low) / step) + 1))
    return Scale(low, high, False, ticks)


def _logarithmic(low: float, high: float) -> Scale:
    low, high = low / 1.12, high * 1.12
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    span = math.log10(high / low)
    # The fewer decades there are, the finer they are divided.
    parts: Sequence[int] = (1,) if span > 2.5 else (1, 3) if span > 1.5 else (1, 2, 5)
    ticks = tuple(t for d in decades for p in parts if low <= (t := p * 10.0**d) <= high)
    if len(ticks) < 2:
        # Less than a factor of two: even steps read better than powers.
        step = _nice((high - low) / 4)
        first = math.ceil(low / step)
        ticks = tuple(round(i * step, 12) for i in range(first, math.floor(high / step) + 1))
    # With six decades and more, every other one.
    return Scale(low, high, True, ticks if len(ticks) < 8 else ticks[:: -(-len(ticks) // 7)])


def _nice(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(p * power for p in (1, 2, 2.5, 5, 10) if p * power >= step * 0.999)


def number(value: float) -> str:
    """A number as short as a tick's label should be."""
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    mantissa, exponent = f"{value:.2e}".split("e")
    digits = mantissa.rstrip("0").rstrip(".")
    return f"1e{int(exponent)}" if digits == "1" else f"{digits}e{int(exponent)}"
