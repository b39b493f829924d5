from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlayer.protocol.client_sampling import sample_clients


def test_a_sample_is_what_it_was() -> None:
    # Pinned: an exact resume on another machine, or with another release, draws the same.
    assert sample_clients(0, 7, range(1000), 3) == (85, 775, 878)


@given(st.integers(0, 1 << 62), st.integers(0, 1 << 40), st.sets(st.integers(0, 5000)), st.integers(1, 50))
def test_a_sample_is_of_those_given_in_their_order(
    seed: int, number: int, known: set[int], count: int
) -> None:
    found = sample_clients(seed, number, known, count)
    assert set(found) <= known
    assert list(found) == sorted(set(found))
    assert len(found) == min(count, len(known))
    assert found == sample_clients(seed, number, sorted(known, reverse=True), count)


@given(st.integers(0, 1000), st.sets(st.integers(0, 300), min_size=2), st.integers(1, 20))
def test_who_leaves_moves_nobody_else(number: int, known: set[int], count: int) -> None:
    before = set(sample_clients(1, number, known, count))
    gone = min(before)
    after = set(sample_clients(1, number, known - {gone}, count))
    assert before - {gone} <= after


@pytest.mark.parametrize("seed", [0, 1])
def test_everybody_has_the_same_chance(seed: int) -> None:
    drawn: Counter[int] = Counter()
    for number in range(2000):
        drawn.update(sample_clients(seed, number, range(100), 10))
    # 200 each; 134 is five standard deviations below.
    assert len(drawn) == 100
    assert min(drawn.values()) > 134
    assert max(drawn.values()) < 266
