import gc
import weakref

from cutlayer.server.settled_objects import settled_objects


class Node:
    def __init__(self) -> None:
        self.me = self


def test_new_garbage_is_found_and_nothing_stays_settled() -> None:
    old = Node()
    before = gc.get_freeze_count()
    with settled_objects():
        assert gc.get_freeze_count() > before
        new = weakref.ref(Node())
        gc.collect()
        assert new() is None
    assert gc.get_freeze_count() == 0
    gone = weakref.ref(old)
    del old
    gc.collect()
    assert gone() is None
