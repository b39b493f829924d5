import math
import random

import pytest

from cutlayer.analysis import paired, pooled_spread
from cutlayer.analysis.paired import differences
from cutlayer.errors import InputError


def by_seed(*values: float) -> dict[object, float]:
    return dict(enumerate(values))


def test_an_interval_by_hand() -> None:
    found = paired(by_seed(70, 71, 72), by_seed(71, 71, 71))
    assert found.pairs == 3
    assert found.difference.mean == 0
    assert found.difference.high == pytest.approx(4.3027 / 3**0.5, abs=1e-4)
    assert found.verdict == "undecided", "an interval around 0 shows nothing"


def test_pairs_are_by_seed_and_only_of_what_both_have() -> None:
    """Seeds differ by ten points, policies by 0.1: unpaired, the interval would be as wide as the seeds."""
    theirs = by_seed(60, 70, 80, 75)
    ours = {1: 69.9, 0: 59.9, 2: 79.9, 7: 99.0}
    assert sorted(differences(ours, theirs)) == pytest.approx([-0.1] * 3)
    assert paired(ours, theirs).verdict == "non-inferior"
    with pytest.raises(InputError, match="no pair in common"):
        paired({0: 1.0}, {1: 1.0})


def test_the_verdict_needs_the_whole_interval() -> None:
    base = by_seed(70, 70, 70, 70)
    assert paired(by_seed(69.8, 69.9, 69.85, 69.9), base).verdict == "non-inferior"
    assert paired(by_seed(69.8, 69.9, 69.85, 69.9), base, margin=0.05).verdict == "inferior"
    assert paired(by_seed(69.0, 70.8, 69.9, 70.3), base).verdict == "undecided"
    assert paired(by_seed(69.0, 69.1, 68.9, 69.0), base).verdict == "inferior"


def test_one_pair_decides_nothing_by_itself() -> None:
    found = paired(by_seed(60), by_seed(70))
    assert found.difference.low == -math.inf
    assert found.verdict == "undecided"


def test_few_pairs_use_the_spread_of_the_others() -> None:
    spread = pooled_spread([[0.1, 0.3], [-1.0, -1.2, -1.4], [5.0]])
    assert spread is not None
    assert spread.freedom == 3
    assert spread.deviation == pytest.approx(((0.02 + 0.08) / 3) ** 0.5)
    found = paired(by_seed(60), by_seed(70), spread=spread)
    assert found.pooled
    assert found.verdict == "inferior"
    assert found.difference.high == pytest.approx(-10 + 3.1824 * spread.deviation, abs=1e-3)
    three = paired(by_seed(60, 61, 62), by_seed(70, 70, 70), spread=spread)
    assert not three.pooled, "three pairs speak for themselves"
    assert pooled_spread([[1.0], []]) is None


def test_a_policy_at_the_margin_is_rarely_called_non_inferior() -> None:
    rng = random.Random(2)
    count = 2000
    passed = sum(
        paired(by_seed(*(rng.gauss(-0.3, 0.4) for _ in range(5))), by_seed(*[0] * 5)).verdict
        == "non-inferior"
        for _ in range(count)
    )
    # One side of a 95 % interval: 50 of 2000 with a standard deviation of 7.
    assert 25 < passed < 75
