"""Statistics: predictions grouped into classes, and each class's frequencies of levels."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs.entropy.model import FINE

SCALE_BITS = 11
SCALE = 1 << SCALE_BITS  # frequencies of a class add up to this
CLASSES = 24  # with their frequencies spread out they still fit a second-level cache
_WORTH = 160  # elements that a class must have for each of its frequencies to pay

Array = NDArray[Any]


@dataclass(frozen=True)
class Tables:
    """`starts`: the prediction at which each class begins, the first with 0. `frequencies`: of each level."""

    starts: list[int]
    frequencies: Array  # int64 (classes, symbols)

    def class_of(self) -> Array:
        """The class of each prediction, uint8."""
        return (np.searchsorted(self.starts, np.arange(FINE), side="right") - 1).astype(np.uint8)


def tables(histogram: Array) -> Tables:
    """Classes of about equally many elements, each as fine as its number of elements pays for."""
    symbols = histogram.shape[1]
    total = int(histogram.sum())
    wanted = min(CLASSES, max(1, total // (_WORTH * symbols)))
    before = np.concatenate([[0], histogram.sum(1).cumsum()[:-1]])
    target = before * wanted // total
    new = np.flatnonzero(np.diff(target) > 0) + 1
    starts = [0, *(int(s) for s in new if s)]
    counts = np.add.reduceat(histogram, starts, axis=0)
    keep = counts.sum(1) > 0
    if not keep.all():  # a class that nothing falls into joins the one before
        starts = [0, *(s for s, k in zip(starts[1:], keep[1:], strict=True) if k)]
        counts = np.add.reduceat(histogram, starts, axis=0)
    return Tables(starts, _frequencies(counts))


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


def bits(histogram: Array, found: Tables) -> float:
    """What coding the counted elements costs."""
    counts = np.add.reduceat(histogram, found.starts, axis=0)
    with np.errstate(divide="ignore"):
        cost = np.where(counts > 0, SCALE_BITS - np.log2(np.maximum(found.frequencies, 1)), 0.0)
    return float((counts * cost).sum())
