import math

import pytest

from cutlayer.report.axis import number, scale_of


def test_a_linear_axis_holds_all_values_between_round_ticks() -> None:
    scale = scale_of([61.3, 76.9, None, math.nan], log=False)
    assert (scale.low, scale.high) == (60, 80)
    assert scale.ticks == (60, 65, 70, 75, 80)
    assert scale.at(60) == 0
    assert scale.at(70) == 0.5
    assert not scale.fits(None)
    assert not scale.fits(math.inf)


def test_a_logarithmic_axis_gives_equal_factors_equal_room() -> None:
    scale = scale_of([0.01, 1.0, -3.0, 0.0], log=True)
    assert scale.at(0.1) - scale.at(0.01) == pytest.approx(scale.at(1) - scale.at(0.1))
    assert 0 < scale.at(0.01) < scale.at(1) < 1
    assert {0.01, 0.1, 1.0} <= {round(tick, 9) for tick in scale.ticks}
    assert not scale.fits(0.0)


def test_bars_begin_at_zero() -> None:
    assert scale_of([7.0, 9.0], log=False, from_zero=True).low == 0
    assert scale_of([-7.0, -9.0], log=False, from_zero=True).high == 0


def test_epochs_have_no_fractions() -> None:
    assert scale_of([1, 2, 3], log=False).ticks == (1, 2, 3)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("values", [[], [5.0], [0.0], [5.0, 5.0], [1e-300, 1e300], [4.0, 4.5]])
def test_odd_values_still_give_an_axis(values: list[float], log: bool) -> None:
    scale = scale_of(values, log)
    assert scale.low < scale.high
    assert 1 <= len(scale.ticks) < 12
    assert all(0 <= scale.at(tick) <= 1.0001 for tick in scale.ticks)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.25, "0.25"), (70.0, "70"), (12345.0, "12,345"), (1e-5, "1e-5"), (2.5e7, "2.5e7")],
)
def test_labels_are_short(value: float, text: str) -> None:
    assert number(value) == text
