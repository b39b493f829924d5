"""However greedy some peers are, there is a place for the next."""

from contextlib import ExitStack

import pytest

from cutlayer.wire.limits import Places


def take(places: Places, peer: str, stack: ExitStack) -> int:
    """As many as it gets."""
    count = 0
    while True:
        try:
            stack.enter_context(places.held(peer))
        except BlockingIOError:
            return count
        count += 1


def test_greedy_peers_leave_places_for_others() -> None:
    places = Places(64)
    with ExitStack() as stack:
        assert [take(places, f"greedy {number}", stack) for number in range(5)] == [32, 16, 8, 4, 2]
        with places.held("honest"):
            assert places.taken <= 64
    assert places.taken == 0


def test_one_place_is_a_place() -> None:
    places = Places(1)
    with places.held("a"), pytest.raises(BlockingIOError, match="come again"), places.held("b"):
        pass
    with places.held("b"):
        assert places.taken == 1
