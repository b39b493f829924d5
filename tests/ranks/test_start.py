"""Ranks agree on their start, whatever earlier ones left in the store."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from torch.distributed import HashStore

from cutlayer.ranks.start import Start, agree_on_start, run_begins


def start(store: HashStore, world: int) -> Start:
    with ThreadPoolExecutor(world) as pool:
        found = set(pool.map(lambda rank: agree_on_start(store, rank, world), reversed(range(world))))
    assert len(found) == 1
    return found.pop()


def test_every_start_has_a_name_of_its_own_and_knows_whether_a_run_was_begun() -> None:
    store = HashStore()
    store.set_timeout(timedelta(seconds=60))
    found = [start(store, 3), start(store, 3)]
    run_begins(store)
    found += [start(store, 2), start(store, 1)]
    assert len({one.name for one in found}) == 4
    # Ranks that refused to begin are no reason to go on with a run that was there before.
    assert [one.goes_on for one in found] == [False, False, True, True]


def test_ranks_that_died_before_all_were_there_are_not_waited_for() -> None:
    store = HashStore()
    store.set_timeout(timedelta(seconds=60))
    begun = start(store, 3)
    # Rank 1 came, and died; rank 0 had seen it.
    store.set("cutlayer/here/1", "dead")
    again = start(store, 3)
    assert again.name != begun.name
