"""Verdicts on time: noise must not make an order hold."""

import random
from typing import Any

import pytest

from cutlayer.analysis import Interval
from cutlayer.reproduce.measurements.speed_findings import at_most, equals, findings, together
from cutlayer.reproduce.results import Claim

DS = [1 << i for i in range(14, 23)]
KS = [1 << i for i in range(4, 15, 2)]
FIXED_D, FIXED_K = 1 << 18, 1 << 9
ROWS = ("SP", "MS", "RT", "SP by torch.topk", "RT, k draws", "KM (k-means)")


def claims(power: float, noise: float, seed: int = 0) -> dict[str, Claim]:
    """Times that grow as d^power, times log-normal noise."""
    rng = random.Random(seed)
    records: dict[str, Any] = {}
    for row in ROWS:
        for d, k in [(d, FIXED_K) for d in DS] + [(FIXED_D, k) for k in KS]:
            time = 1e-9 * d**power * 2 ** rng.gauss(0, noise)
            records[f"{row}/{d}/{k}"] = {"encode": time, "decode": None}
    found = findings(records, FIXED_D, FIXED_K, judged=True).claims
    return {claim.claim: claim for claim in found}


def test_a_wide_interval_decides_nothing() -> None:
    assert at_most(Interval(1.6, 0.9, 2.3), 1) == "undecided", "its lower end is below, which says nothing"
    assert at_most(Interval(1.0, 0.95, 1.05), 1) is True
    assert at_most(Interval(1.6, 1.5, 1.7), 1) is False
    assert equals(Interval(1.0, 0.5, 1.5), 1) == "undecided"
    assert equals(Interval(1.0, 0.95, 1.05), 1) is True
    assert equals(Interval(0.2, 0.0, 0.4), 1) is False
    assert together(True, "undecided", False) is False
    assert together(True, "undecided") == "undecided"


ORDER = "Encoding with SP and MS costs O(d log k)"


def test_a_linear_time_is_at_most_linear() -> None:
    found = claims(1.0, 0.01)
    assert found[ORDER].holds is True
    assert found["MS does not raise the order of SP"].holds is True
    assert found["RT costs O(dk)"].holds is False, "it does not grow with k"


def test_a_power_of_one_and_a_half_is_not() -> None:
    assert claims(1.5, 0.01)[ORDER].holds is False


@pytest.mark.parametrize("seed", range(5))
def test_noise_does_not_make_a_power_of_one_and_a_half_pass_for_linear(seed: int) -> None:
    found = claims(1.5, 2.0, seed)
    assert found[ORDER].holds in (False, "undecided")
    assert found["MS does not raise the order of SP"].holds == "undecided"
