"""The prediction of coefficients: weights that all share, and a constant for each frequency of each channel.

Coefficients have thousands of channels, too many for weights of their own. What they share is how far a
coefficient follows those of the blocks around, of the next lower frequencies, and of the channel before.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs.entropy.context_model import NEIGHBOURS, Model, coarse
from cutlayer.codecs.entropy.dct import BLOCK
from cutlayer.codecs.entropy.least_squares import rounded, solve
from cutlayer.codecs.entropy.section_shape import Geometry

PARENTS = (
    1,
    BLOCK,
    BLOCK * BLOCK,
    2 * BLOCK * BLOCK,
)  # the frequencies before, across and down; two channels
GAINS = (1.0, 2.0, 4.0, 8.0)  # most coefficients are zero: enlarged, their small expectations are told apart
_ELEMENTS = 1 << 20  # that a fit looks at
_PLACES = 1 << 14  # of a channel, so that sums of products of levels below 32 are exact in float32
_LITTLE = 0.02  # variance below which a channel counts for less

Array = NDArray[Any]


def fit_shared(levels: Array, shape: Geometry, most: int, cost: Callable[[Model], float]) -> Model:
    """Weights and constants by least squares, at the gain of least cost."""
    whole = shape.d // shape.sample
    a = levels.reshape(whole, shape.channels, shape.height, shape.width) >> coarse(most)
    a = a[:: max(1, whole * shape.sample // _ELEMENTS)]
    features, places = _features(a), a.shape[0] * shape.height * shape.width
    moments = np.zeros((shape.channels, features.shape[1], features.shape[1]))
    total = np.zeros(features.shape[:2])
    for i in range(0, places, _PLACES):
        part = features[:, :, i : i + _PLACES]
        moments += part @ part.swapaxes(1, 2)  # of integers: exact in any order
        total += part.sum(2)
    moments -= total[:, :, None] * total[:, None, :] / places
    # A channel that varies a lot has no more to say than others.
    pooled = np.add.reduce(moments / (moments[:, -1, -1] + _LITTLE * places)[:, None, None], axis=0)
    weights = solve(pooled[None, :-1, :-1], pooled[None, :-1, -1])[0]
    expected = total / places
    constants = expected[:, -1] - sum(w * expected[:, i] for i, w in enumerate(weights))
    models = (_model(gain * weights, gain * constants) for gain in GAINS)
    return min(models, key=cost)


def _features(a: Array) -> Array:
    """Of (samples, channels, height, width): (channels, neighbours, parents and the level itself, places)."""
    samples, channels, height, width = a.shape
    framed = np.pad(a, ((0, 0), (0, 0), (1, 0), (1, 1)))
    out = np.zeros((channels, NEIGHBOURS + len(PARENTS) + 1, samples, height, width), np.float32)
    for i, (y, x) in enumerate(((1, 0), (0, 1), (0, 0), (0, 2))):  # left, above, above left, above right
        out[:, i] = framed[:, :, y : y + height, x : x + width].swapaxes(0, 1)
    for i, back in enumerate(PARENTS):
        out[back:, NEIGHBOURS + i] = a[:, : channels - back].swapaxes(0, 1)
    out[:, -1] = a.swapaxes(0, 1)
    return out.reshape(channels, out.shape[1], -1)


def _model(weights: Array, constants: Array) -> Model:
    channels = len(constants)
    row = rounded(weights)
    # A weight of 0 is no parent; nor is a channel before the first.
    back = np.where(row[NEIGHBOURS:] != 0, PARENTS, 0)
    return Model(
        np.concatenate([rounded(constants)[:, None], np.tile(row[:NEIGHBOURS], (channels, 1))], axis=1),
        np.where(back > np.arange(channels)[:, None], 0, back).astype(np.uint8),
        np.tile(row[NEIGHBOURS:], (channels, 1)),
        shared=True,
    )
