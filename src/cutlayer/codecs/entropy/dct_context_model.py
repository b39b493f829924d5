"""The context model of DCT coefficients: weights that all channels share, and a constant for each channel.

A section of coefficients has 64 channels for each channel of the tensor: too many for weights of their own.
They share how much a coefficient depends on the neighbouring blocks, on the next lower frequencies, and on
the rotated channels before. The constant is for each frequency of each rotated channel.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs.entropy.context_model import NEIGHBOURS, ContextModel, level_shift
from cutlayer.codecs.entropy.dct import BLOCK
from cutlayer.codecs.entropy.least_squares import quantize_weights, solve
from cutlayer.codecs.entropy.section_shape import SectionShape

# How many channels back the parents are: the next lower frequency across and down, and the one and two
# rotated channels before.
PARENTS = (1, BLOCK, BLOCK * BLOCK, 2 * BLOCK * BLOCK)
# Most coefficients are zero. A gain enlarges their small predictions, so that quantization still tells them
# apart.
GAINS = (1.0, 2.0, 4.0, 8.0)
_FIT_ELEMENTS = 1 << 20  # elements that a fit uses
_POSITIONS = 1 << 14  # summed at a time, so that sums of products of levels below 32 are exact in float32
_MIN_VARIANCE = 0.02  # added to each channel's variance before its moments are divided by it

Array = NDArray[Any]


def fit_dct_model(
    levels: Array,
    shape: SectionShape,
    n_levels: int,
    cost: Callable[[ContextModel], float],
    parents: tuple[int, ...] = PARENTS,
) -> ContextModel:
    """Fit weights and constants by least squares, and choose the gain of least `cost`.

    `parents`: how many channels back the parents are.
    """
    whole = shape.d // shape.sample
    a = levels.reshape(whole, shape.channels, shape.height, shape.width) >> level_shift(n_levels)
    a = a[:: max(1, whole * shape.sample // _FIT_ELEMENTS)]
    features, positions = _features(a, parents), a.shape[0] * shape.height * shape.width
    moments = np.zeros((shape.channels, features.shape[1], features.shape[1]))
    total = np.zeros(features.shape[:2])
    for i in range(0, positions, _POSITIONS):
        part = features[:, :, i : i + _POSITIONS]
        moments += part @ part.swapaxes(1, 2)  # of integers: exact in any order
        total += part.sum(2)
    moments -= total[:, :, None] * total[:, None, :] / positions
    # Normalised by its variance, each channel counts about equally.
    pooled = np.add.reduce(moments / (moments[:, -1, -1] + _MIN_VARIANCE * positions)[:, None, None], axis=0)
    weights = solve(pooled[None, :-1, :-1], pooled[None, :-1, -1])[0]
    expected = total / positions
    constants = expected[:, -1] - sum(w * expected[:, i] for i, w in enumerate(weights))
    models = (_model(gain * weights, gain * constants, parents) for gain in GAINS)
    return min(models, key=cost)


def _features(a: Array, parents: tuple[int, ...]) -> Array:
    """Features for the fit: from (samples, channels, height, width) to (channels, features, positions).

    The features are the neighbours, the parents, and last the level itself.
    """
    samples, channels, height, width = a.shape
    padded = np.pad(a, ((0, 0), (0, 0), (1, 0), (1, 1)))
    out = np.zeros((channels, NEIGHBOURS + len(parents) + 1, samples, height, width), np.float32)
    for i, (y, x) in enumerate(((1, 0), (0, 1), (0, 0), (0, 2))):  # left, above, above left, above right
        out[:, i] = padded[:, :, y : y + height, x : x + width].swapaxes(0, 1)
    for i, back in enumerate(parents):
        out[back:, NEIGHBOURS + i] = a[:, : channels - back].swapaxes(0, 1)
    out[:, -1] = a.swapaxes(0, 1)
    return out.reshape(channels, out.shape[1], -1)


def _model(weights: Array, constants: Array, parents: tuple[int, ...]) -> ContextModel:
    channels = len(constants)
    row = quantize_weights(weights)
    # A weight of 0 means no parent. A parent before channel 0 does not exist.
    back = np.where(row[NEIGHBOURS:] != 0, np.array(parents, np.int64), 0)
    return ContextModel(
        np.concatenate(
            [quantize_weights(constants)[:, None], np.tile(row[:NEIGHBOURS], (channels, 1))], axis=1
        ),
        np.where(back > np.arange(channels)[:, None], 0, back).astype(np.uint8),
        np.tile(row[NEIGHBOURS:], (channels, 1)),
        shared=True,
    )
