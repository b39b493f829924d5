"""Frequency tables for rANS: predictions are grouped into classes, each with its frequencies of levels."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs.entropy.context_model import PREDICTIONS

SCALE_BITS = 11
SCALE = 1 << SCALE_BITS  # the frequencies of a class add up to this
MAX_CLASSES = 24  # so many decoding tables still fit a second-level cache
MIN_ELEMENTS = (
    160  # elements of a class for each of its frequencies: with fewer, a class costs more than it saves
)
COST_BITS = 16
# The cost of a symbol by its frequency, in 2^-16 bits. Integers, so that every machine gets the same sum.
COST = np.array([0, *(round((SCALE_BITS - math.log2(f)) * (1 << COST_BITS)) for f in range(1, SCALE + 1))])

Array = NDArray[Any]


@dataclass(frozen=True)
class FrequencyTables:
    """The classes of predictions, and the frequency of each level in each class."""

    starts: list[int]  # the smallest prediction of each class; the first is 0
    frequencies: Array  # int64 (classes, symbols)

    def class_of(self) -> Array:
        """The class of each prediction, uint8."""
        return (np.searchsorted(self.starts, np.arange(PREDICTIONS), side="right") - 1).astype(np.uint8)


def frequency_tables(histogram: Array) -> tuple[FrequencyTables, int]:
    """Classes of about equally many elements, and the cost of coding the counted elements, in 2^-16 bits.

    `histogram` (predictions, symbols) counts levels by prediction. More elements get more classes.
    """
    symbols = histogram.shape[1]
    total = int(histogram.sum())
    wanted = min(MAX_CLASSES, max(1, total // (MIN_ELEMENTS * symbols)))
    before = np.concatenate([[0], histogram.sum(1).cumsum()[:-1]])
    # No class begins where no elements are left.
    new = np.flatnonzero((np.diff(before * wanted // total) > 0) & (before[1:] < total)) + 1
    starts = [0, *(int(s) for s in new)]
    counts = np.add.reduceat(histogram, starts, axis=0)
    frequencies = _frequencies(counts)
    return FrequencyTables(starts, frequencies), int((counts * COST[frequencies]).sum())


def _frequencies(counts: Array) -> Array:
    """Counts scaled to integers that add up to SCALE in each row; a count above 0 gets at least 1."""
    total = counts.sum(1, keepdims=True)
    scaled = (2 * counts * SCALE + total) // (2 * np.maximum(total, 1))
    scaled = np.where(counts > 0, np.maximum(scaled, 1), 0)
    rows = np.arange(len(counts))
    while (off := SCALE - scaled.sum(1)).any():
        # The most frequent symbol absorbs the rounding error.
        most = scaled.argmax(1)
        scaled[rows, most] = np.maximum(scaled[rows, most] + off, 1)
    return scaled
