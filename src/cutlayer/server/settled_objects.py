"""Python's garbage collector, kept from going through everything that was loaded before training.

PyTorch alone is half a million objects. To look at all of them takes half a second, and messages of thousands
of clients make the collector do so every few steps. It finds nothing: what was there before stays to the end.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def settled_objects() -> Iterator[None]:
    """What is there now is not looked at inside."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
