"""A curve of any length in a bounded number of points."""

from __future__ import annotations

# A page that is a thousand pixels wide shows no more.
_POINTS = 400


class Curve:
    """Means over equally many values a point. When there are too many points, neighbours are merged."""

    def __init__(self, points: int = _POINTS) -> None:
        self._most = points
        self._each = 1
        self._points: list[tuple[float, float]] = []
        self._open: list[tuple[float, float]] = []

    def add(self, x: float, y: float) -> None:
        """One more value."""
        self._open.append((x, y))
        if len(self._open) == self._each:
            self._points.append(_mean(self._open))
            self._open = []
        if len(self._points) > self._most:
            pairs = [self._points[i : i + 2] for i in range(0, len(self._points) - 1, 2)]
            rest = self._points[2 * len(pairs) :]
            self._points = [_mean(pair) for pair in pairs]
            self._open = [point for point in rest for _ in range(self._each)] + self._open
            self._each *= 2

    def points(self) -> list[tuple[float, float]]:
        """What there is to draw, the last point with whatever values it has so far."""
        return [*self._points, *([_mean(self._open)] if self._open else [])]


def _mean(values: list[tuple[float, float]]) -> tuple[float, float]:
    """The last place and the mean of the values."""
    return values[-1][0], sum(y for _, y in values) / len(values)
