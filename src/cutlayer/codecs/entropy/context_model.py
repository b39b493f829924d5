"""Which elements are likely to be large: a linear prediction from levels that are already known.

The prediction of an element weighs four neighbours in its plane (left, above, above left, above right) and,
where channels have rows of their own, the elements at the same place in up to four earlier channels. It
only chooses the statistics with which the element's level is coded; it never changes a decoded value.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

UNIT = 32  # weights are multiples of 1/32
FINE = 128  # values of the quantized prediction
PARENTS = 4
NEIGHBOURS = 4
FARTHEST = 255  # channels back

Array = NDArray[Any]


@dataclass(frozen=True)
class Model:
    """Weights, one row for all channels or one for each. A parent `distance` channels back has a weight."""

    weights: Array  # int8 (rows, 1 + NEIGHBOURS): constant, left, above, above left, above right
    distance: Array  # uint8 (rows, parents); 0 for none
    parent: Array  # int8 (rows, parents)
    shared: bool = False  # whether rows differ in their constants alone (and in parents that do not exist)

    @property
    def rows(self) -> int:
        """Rows of weights: 1, or one for each channel."""
        return len(self.weights)


def coarse(levels: int) -> int:
    """By how many bits levels are shifted before they are weighed, so that sums stay within 16 bits."""
    return max(0, levels.bit_length() - 5)


def grain(levels: int) -> int:
    """By how many bits a prediction is shifted to lie within FINE values."""
    return max(0, (UNIT * (levels >> coarse(levels))).bit_length() - 7)


def flat_model() -> Model:
    """The left and the upper neighbour, half each."""
    half = UNIT // 2
    return Model(
        np.array([[0, half, half, 0, 0]], np.int8), np.zeros((1, 0), np.uint8), np.zeros((1, 0), np.int8)
    )
