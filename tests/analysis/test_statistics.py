import random

import pytest

from cutlayer.analysis import mean_interval, power_law, share_interval
from cutlayer.analysis.statistics import t_quantile
from cutlayer.errors import InputError


@pytest.mark.parametrize(
    ("freedom", "value"), [(1, 12.7062), (2, 4.3027), (5, 2.5706), (10, 2.2281), (30, 2.0423)]
)
def test_quantiles_are_those_of_the_tables(freedom: int, value: float) -> None:
    assert t_quantile(freedom, 0.95) == pytest.approx(value, abs=1e-4)


def test_an_interval_by_hand() -> None:
    found = mean_interval([1.0, 2.0, 3.0])
    assert found.mean == 2
    assert found.high - 2 == pytest.approx(4.3027 / 3**0.5, abs=1e-4)
    assert found.excludes(5)
    assert not found.excludes(0)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    rng = random.Random(1)
    covered = sum(not mean_interval([rng.gauss(3, 2) for _ in range(8)]).excludes(3.0) for _ in range(2000))
    # 1900 expected with a standard deviation of 9.7.
    assert 1860 < covered < 1940


def test_shares() -> None:
    found = share_interval(8, 10)
    assert (found.mean, round(found.low, 3), round(found.high, 3)) == (0.8, 0.490, 0.943)
    assert share_interval(10, 10).high == pytest.approx(1)
    assert share_interval(0, 10).low == pytest.approx(0, abs=1e-12)
    with pytest.raises(InputError):
        share_interval(3, 2)


def test_a_power_law_is_found() -> None:
    x = [1.0, 2.0, 4.0, 8.0]
    found = power_law(x, [3 * a**1.5 for a in x])
    assert found.exponent.mean == pytest.approx(1.5)
    assert found.factor == pytest.approx(3)
    assert found.r_squared == pytest.approx(1)
    with pytest.raises(InputError, match="three or more"):
        power_law([1, 1, 2], [1, 2, 3])
