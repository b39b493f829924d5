"""Curves keep their ends and their mean, in a bounded number of points."""

import pytest

from cutlayer.dashboard.curve import Curve


def test_few_values_are_kept_as_they_are() -> None:
    curve = Curve()
    for x in range(5):
        curve.add(x, x * x)
    assert curve.points() == [(x, x * x) for x in range(5)]


@pytest.mark.parametrize("values", [9, 10, 11, 12, 100, 1000, 1023])
def test_many_values_are_thinned_to_means(values: int) -> None:
    curve = Curve(points=8)
    for x in range(values):
        curve.add(x, float(x))
    found = curve.points()
    assert 4 <= len(found) <= 9
    assert found[-1][0] == values - 1
    xs = [x for x, _ in found]
    assert xs == sorted(set(xs))
    begin = -1
    for x, y in found:
        assert y == pytest.approx((begin + 1 + x) / 2), "the mean of the values behind the point before"
        begin = int(x)
