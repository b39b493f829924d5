"""Claims on compression errors, from errors made up so that difference and ratio disagree."""

import pytest

from cutlayer.reproduce.measurements.error_findings import _gap_to_sp, _monotone

RATES = (2.0, 3.0, 4.0, 5.0)
PLACES = [("digits", "deep")]


def holds(sp: list[float], ms: list[float]) -> list[object]:
    errors = {"sp": dict(zip(RATES, sp, strict=True)), "ms": dict(zip(RATES, ms, strict=True))}
    return [c.holds for c in _gap_to_sp(PLACES, lambda place, family, bits: errors[family][bits], RATES)]


@pytest.mark.parametrize(
    ("sp", "ms", "difference", "ratio"),
    [
        ([10, 8, 6, 4], [10, 4, 1, 0.1], False, True),
        ([10, 10, 10, 10], [10, 5, 2, 1], True, True),
        ([10, 20, 40, 80], [5, 10, 20, 40], True, False),
    ],
)
def test_a_gap_that_grows_as_a_ratio_may_shrink_as_a_difference(
    sp: list[float], ms: list[float], difference: bool, ratio: bool
) -> None:
    assert holds(sp, ms) == [difference, ratio]


def test_an_error_that_rises_with_the_rate_is_named() -> None:
    claim = _monotone({"digits deep": {2: 5.0, 4: 1.0, 4.32: 1.4, 8: 0.9}})
    assert claim.holds == "partly"
    assert "not in: digits deep 4.32 bits (1.4, 1 at 4)" in claim.evidence
