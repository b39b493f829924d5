"""Statistics: predictions grouped into classes, and each class's frequencies of levels."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs.entropy.context_model import FINE

SCALE_BITS = 11
SCALE = 1 << SCALE_BITS  # frequencies of a class add up to this
CLASSES = 24  # with their frequencies spread out they still fit a second-level cache
WORTH = 160  # elements that a class must have for each of its frequencies to pay
COST_BITS = 16
# What a symbol costs by its frequency, in 2^-16 bits: integers, so that all add up to the same.
COST = np.array([0, *(round((SCALE_BITS - math.log2(f)) * (1 << COST_BITS)) for f in range(1, SCALE + 1))])

Array = NDArray[Any]


@dataclass(frozen=True)
class Tables:
    """`starts`: the prediction at which each class begins, the first with 0. `frequencies`: of each level."""

    starts: list[int]
    frequencies: Array  # int64 (classes, symbols)

    def class_of(self) -> Array:
        """The class of each prediction, uint8."""
        return (np.searchsorted(self.starts, np.arange(FINE), side="right") - 1).astype(np.uint8)


def tables(histogram: Array) -> tuple[Tables, int]:
    """Classes of about equally many elements, each as fine as its number of elements pays for; and what it
    costs to code the counted elements with them, in parts of a bit."""
    symbols = histogram.shape[1]
    total = int(histogram.sum())
    wanted = min(CLASSES, max(1, total // (WORTH * symbols)))
    before = np.concatenate([[0], histogram.sum(1).cumsum()[:-1]])
    # No class begins where no elements are left.
    new = np.flatnonzero((np.diff(before * wanted // total) > 0) & (before[1:] < total)) + 1
    starts = [0, *(int(s) for s in new)]
    counts = np.add.reduceat(histogram, starts, axis=0)
    frequencies = _frequencies(counts)
    return Tables(starts, frequencies), int((counts * COST[frequencies]).sum())


def _frequencies(counts: Array) -> Array:
    """Integers that add up to SCALE in each row, none 0 where the count is not."""
    total = counts.sum(1, keepdims=True)
    scaled = (2 * counts * SCALE + total) // (2 * np.maximum(total, 1))
    scaled = np.where(counts > 0, np.maximum(scaled, 1), 0)
    rows = np.arange(len(counts))
    while (off := SCALE - scaled.sum(1)).any():
        # What rounding left over goes to, or comes from, the most frequent.
        most = scaled.argmax(1)
        scaled[rows, most] = np.maximum(scaled[rows, most] + off, 1)
    return scaled
