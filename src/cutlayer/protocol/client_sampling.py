"""Which clients take part in a round: a seeded sample, the same wherever and whenever it is drawn.

Every client has a rank in every round, a hash of the run's seed, the round and the client's number. Those
with the lowest ranks take part. A client's rank does not depend on who else is there: when somebody joins or
leaves, everybody else keeps theirs.
"""

from collections.abc import Collection

import numpy as np

from cutlayer.seeds import derive

# The constants of splitmix64 (Steele, Lea and Flood, 2014), a hash of 64 bits that works on whole arrays.
_GAMMA, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def sample_clients(seed: int, number: int, clients: Collection[int], count: int) -> tuple[int, ...]:
    """The `count` clients that take part in round `number`, in client order; all, if there are no more.

    >>> sample_clients(0, 7, range(1000), 3)
    (85, 775, 878)
    """
    if len(clients) <= count:
        return tuple(sorted(clients))
    numbers = np.fromiter(clients, np.uint64, len(clients))
    key = numbers * np.uint64(_GAMMA) + np.uint64(derive("participants", seed, number))
    key = (key ^ (key >> np.uint64(30))) * np.uint64(_FIRST)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(_SECOND)
    key ^= key >> np.uint64(31)
    return tuple(np.sort(numbers[np.argpartition(key, count - 1)[:count]]).tolist())
