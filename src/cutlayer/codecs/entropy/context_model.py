"""The context model: a linear prediction of each level from levels that are already decoded.

The prediction of an element weighs four causal neighbours in its plane (left, above, above left, above right)
and, with weights per channel, the elements at the same position in up to four earlier channels, its parents.
The quantized prediction is the context: it selects the frequency table with which the level is entropy-coded.
It never changes a decoded value.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs.entropy.section_shape import SectionShape

WEIGHT_UNIT = 32  # weights are multiples of 1/32
PREDICTIONS = 128  # values of a quantized prediction
PARENTS = 4
NEIGHBOURS = 4
MAX_PARENT_DISTANCE = 255  # channels between an element and its parent
MIN_PER_CHANNEL = 3000  # elements of a channel: with fewer, weights of its own cost more bytes than they save
FIT_ELEMENTS = 1 << 16  # that a fit uses
# Weights of its own for each channel need so many positions of each: its parents are chosen among up to 255
# channels, some of which look alike by chance at fewer. But the time of a fit grows with channels squared.
_WANTED_POSITIONS = 1024
_MOST_FIT_ELEMENTS = 1 << 18

Array = NDArray[Any]


@dataclass(frozen=True)
class ContextModel:
    """Weights of the prediction: one row for all channels, or one row for each channel."""

    weights: Array  # int8 (rows, 1 + NEIGHBOURS): constant, left, above, above left, above right
    distance: Array  # uint8 (rows, parents): how many channels back the parent is; 0 for no parent
    parent: Array  # int8 (rows, parents): the weight of the parent
    shared: bool = (
        False  # rows differ only in their constants (and in parents before channel 0, which are dropped)
    )

    @property
    def rows(self) -> int:
        """Rows of weights: 1, or one for each channel."""
        return len(self.weights)


def weights_per_channel(shape: SectionShape) -> bool:
    """Whether each channel gets a row of weights of its own."""
    return shape.channels > 1 and shape.d >= MIN_PER_CHANNEL * shape.channels


def fit_positions(channels: int) -> int:
    """The positions of each channel to which its own weights are fitted."""
    wanted = max(_WANTED_POSITIONS, FIT_ELEMENTS // channels)
    return max(1, min(wanted, _MOST_FIT_ELEMENTS // channels))


def level_shift(levels: int) -> int:
    """Bits by which levels are shifted right before they are weighed, so that sums fit 16 bits."""
    return max(0, levels.bit_length() - 5)


def prediction_shift(levels: int) -> int:
    """Bits by which a prediction is shifted right, so that it takes one of PREDICTIONS values."""
    return max(0, (WEIGHT_UNIT * (levels >> level_shift(levels))).bit_length() - 7)


def default_model() -> ContextModel:
    """The mean of the left and the upper neighbour: for sections too small to fit weights to."""
    half = WEIGHT_UNIT // 2
    return ContextModel(
        np.array([[0, half, half, 0, 0]], np.int8), np.zeros((1, 0), np.uint8), np.zeros((1, 0), np.int8)
    )
