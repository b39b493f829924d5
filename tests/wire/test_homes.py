import pytest

from cutlayer.errors import MovedError, NotNowError
from cutlayer.wire.homes import Homes


def test_every_client_has_one_rank_and_blocks_are_in_order() -> None:
    for clients, world in ((5, 2), (7, 3), (4, 4), (9, 1)):
        homes = [Homes(clients, place, world) for place in range(world)]
        assert [c for one in homes for c in one.own] == list(range(clients))
        assert all(one.own for one in homes)


def test_a_client_of_another_rank_is_told_where_that_is() -> None:
    homes = Homes(4, 0, 2)
    with pytest.raises(NotNowError, match="still coming together"):
        homes.check(3)
    homes.publish(["a:1", "b:2"])
    homes.check(1)
    with pytest.raises(MovedError, match="call b:2") as told:
        homes.check(3)
    assert told.value.address == "b:2"
    assert homes.next().address == "b:2"
