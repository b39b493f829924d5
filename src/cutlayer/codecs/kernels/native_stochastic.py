"""The compiled kernels of stochastic rounding: passes addresses to the extension `cutlayer._native`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutlayer import _native as _n
from cutlayer.codecs.kernels import threads
from cutlayer.codecs.kernels.native_memory import address, empty
from cutlayer.codecs.tensors import Tensor

_ELEMENTS_FOR_THREADS = 1 << 16


def ems_quantize_stochastically(
    x: Tensor, scale: float, n_levels: int, seed: int, stream: int, section: int
) -> Tensor:
    """See `codecs.reference`."""
    out = empty([x.size], np.uint8)
    how = (scale, n_levels, seed, stream, section)
    count = threads.number() if x.size >= _ELEMENTS_FOR_THREADS else 1
    _n.ems_quantize_stochastically(address(x), x.size, *how, address(out), count)
    return out


def ems_stochastic_tops(
    x: Tensor, levels: Tensor, scale: float, n_levels: int, seed: int, stream: int, section: int
) -> NDArray[Any]:
    """See `codecs.reference`."""
    how = (scale, n_levels, seed, stream, section)
    found = _n.ems_stochastic_tops(address(x), address(levels), x.size, *how)
    return np.frombuffer(found, np.int64)


def random_words(seed: int, stream: int, section: int, first: int, n: int) -> NDArray[Any]:
    """See `codecs.reference`."""
    return np.array(_n.random_words(seed, stream, section, first, n), np.int64)
