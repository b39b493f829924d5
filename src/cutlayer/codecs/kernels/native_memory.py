"""Memory of the compiled kernels: addresses of arrays, and space for results."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cutlayer import _native as _n

# Smaller tensors mostly get memory that the allocator has used before, whose pages are mapped already.
_BYTES_FOR_HUGE_PAGES = 1 << 22

#: The address of the memory of an array, which must be contiguous.
address = _n.address


def own(x: Any) -> Any:
    """See `codecs.reference`."""
    return x if isinstance(x, np.ndarray) else x.numpy()


def empty(shape: Sequence[int], dtype: Any = np.float32) -> Any:
    """An uninitialised array."""
    out = np.empty(shape, dtype)
    advise(out)
    return out


def empty_like(x: Any, elements: int) -> Any:
    """See `codecs.reference`."""
    return empty([elements], x.dtype)


def advise(x: Any) -> None:
    """See `codecs.reference`."""
    if x.nbytes >= _BYTES_FOR_HUGE_PAGES:
        x = own(x)
        _n.advise_huge_pages(address(x), x.nbytes)
