"""The binary logarithm with the same bits on every processor.

That of NumPy is its own on AVX-512, and the C library's elsewhere. These differ in the last bit, and an
encoder that rounds such a number would write other frames. Here are only operations that IEEE 754 defines to
the bit: sums, products and quotients, each rounded once.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_TERMS = 11  # of the series: what follows is below the rounding error
_HALF = 0.5**0.5
_SCALE = 2 / 0.6931471805599453  # 2 / ln 2


def log2(x: Array) -> Array:
    """log2(x) in float64, within four units in the last place; -inf for 0. No element is negative."""
    mantissa, exponent = np.frexp(np.asarray(x, np.float64))
    low = mantissa < _HALF
    mantissa, exponent = np.where(low, 2 * mantissa, mantissa), exponent - low
    # ln m = 2 artanh((m - 1) / (m + 1)), where the argument is at most 0.172.
    part = (mantissa - 1) / (mantissa + 1)
    square = part * part
    series = np.full_like(part, 1 / (2 * _TERMS - 1))
    for term in range(_TERMS - 1, 0, -1):
        series = series * square + 1 / (2 * term - 1)
    return np.where(mantissa > 0, exponent + part * series * _SCALE, -np.inf)
