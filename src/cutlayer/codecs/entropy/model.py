"""Which elements are likely to be large: a linear prediction from levels that are already known.

The prediction of an element weighs four neighbours in its plane (left, above, above left, above right) and,
where channels have rows of their own, the elements at the same place in up to four earlier channels. It
only chooses the statistics with which the element's level is coded; it never changes a decoded value.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs.entropy.geometry import Geometry

UNIT = 32  # weights are multiples of 1/32
FINE = 128  # values of the quantized prediction
PARENTS = 4
NEIGHBOURS = 4
FARTHEST = 255  # channels back
_WORTH = 3000  # elements that a channel must have for a row of weights to pay
_ELEMENTS = 1 << 16  # that a fit looks at

Array = NDArray[Any]
# (many, m, n) and (many, k, n) of uint8 below 32 to (many, m, k) of int64; or without `many`.
Dots = Callable[[Array, Array], Array]


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


def worth_rows(shape: Geometry) -> bool:
    """Whether each channel shall have weights of its own."""
    return shape.channels > 1 and shape.d >= _WORTH * shape.channels


def fit(levels: Array, shape: Geometry, most: int, own: bool, dots: Dots) -> Model:
    """Weights by least squares, from a part of the levels (uint8, d elements, at most `most`).

    `own`: a row for each channel, with parents. `dots` gives the sums of products of rows of small integers,
    which are exact, so that the weights do not depend on who adds them up.
    """
    whole = shape.d // shape.sample
    if whole == 0 or shape.d < 64:
        return flat_model()
    a = levels[: whole * shape.sample].reshape(whole, shape.channels, shape.height, shape.width)
    places = _ELEMENTS // (shape.channels if own else 1)
    # Whole samples while they last, then every other place: cheap to cut out, and spread over the tensor.
    a = a[:: max(1, whole * shape.height * shape.width // (4 * places))] >> coarse(most)
    thin = max(1, math.ceil((a[:, 0].size / places) ** 0.5))
    framed = np.pad(a, ((0, 0), (0, 0), (1, 0), (1, 1)))
    height, width = shape.height, shape.width
    features = np.ones(
        (shape.channels, 2 + NEIGHBOURS, a.shape[0], -(-height // thin), -(-width // thin)), np.uint8
    )
    for i, (y, x) in enumerate(((1, 0), (0, 1), (0, 0), (0, 2), (1, 1))):  # left to above right, and itself
        features[:, i + 1] = framed[:, :, y : y + height : thin, x : x + width : thin].swapaxes(0, 1)
    features = features.reshape(shape.channels, 2 + NEIGHBOURS, -1)
    return _fitted(features if own else features.swapaxes(0, 1).reshape(1, 2 + NEIGHBOURS, -1), own, dots)


def _fitted(features: Array, own: bool, dots: Dots) -> Model:
    """Weights for each channel of (channels, own features and the level itself, places)."""
    channels, n = features.shape[0], 1 + NEIGHBOURS
    moments = dots(features, features).astype(np.float64)
    left, right = moments[:, :n, :n], moments[:, :n, n]
    solved = solve(left, right)
    if not own:
        return Model(rounded(solved), np.zeros((1, 0), np.uint8), np.zeros((1, 0), np.int8))
    here = np.ascontiguousarray(features[:, n])
    # The sum of feature i of channel c times the level of channel p, at (i, c, p).
    cross = dots(features.reshape(channels * (n + 1), -1), here).astype(np.float64)
    cross = np.ascontiguousarray(cross.reshape(channels, n + 1, channels).swapaxes(0, 1))
    levels = cross[n]
    each = np.arange(channels)
    back = each[:, None] - each[None, :]
    allowed = (back > 0) & (back <= FARTHEST)
    energy = levels[each, each] - cross[0][each, each] ** 2 / here.shape[1] + 1e-9
    # What the neighbours leave of each channel, times the level of each candidate.
    rest = levels - sum(solved[:, i, None] * cross[i] for i in range(n))
    chosen = np.zeros((channels, min(PARENTS, channels - 1)), np.int64)
    for j in range(chosen.shape[1]):
        # The candidate that explains most of the rest becomes a parent, and its share leaves the rest.
        chosen[:, j] = best = np.where(allowed, rest * rest / energy, -1.0).argmax(1)
        allowed[each, best] = False
        centred = levels[best] - cross[0][each, best, None] * cross[0] / here.shape[1]
        rest = rest - (rest[each, best] / energy[best])[:, None] * centred
    solved = solve(*_with_parents(left, right, cross[:n], levels, chosen))
    weight = np.where(chosen < each[:, None], rounded(solved[:, n:]), 0)
    distance = np.where(weight != 0, each[:, None] - chosen, 0)
    far = distance > FARTHEST
    return Model(
        rounded(solved[:, :n]),
        np.where(far, 0, distance).astype(np.uint8),
        np.where(far, 0, weight).astype(np.int8),
    )


def _with_parents(
    left: Array, right: Array, cross: Array, levels: Array, chosen: Array
) -> tuple[Array, Array]:
    """The normal equations of each channel, with its chosen parents as further features."""
    channels, own = right.shape
    n = own + chosen.shape[1]
    matrix, vector = np.empty((channels, n, n)), np.empty((channels, n))
    matrix[:, :own, :own], vector[:, :own] = left, right
    each = np.arange(channels)
    for j in range(chosen.shape[1]):
        p = chosen[:, j]
        matrix[:, own + j, :own] = matrix[:, :own, own + j] = cross[:, each, p].T
        vector[:, own + j] = levels[each, p]
        for i in range(chosen.shape[1]):
            matrix[:, own + i, own + j] = levels[chosen[:, i], p]
        # A channel without candidates left gets one that explains nothing.
        alone = p >= each
        matrix[alone, own + j, :] = matrix[alone, :, own + j] = vector[alone, own + j] = 0
    return matrix, vector


def solve(matrix: Array, vector: Array) -> Array:
    """Many small positive semi-definite systems by elimination.

    Plain arithmetic and no library call, so that every machine finds the same weights.
    """
    n = vector.shape[1]
    # Systems last: NumPy works on long rows of them then, not on many short ones.
    a = np.ascontiguousarray(np.concatenate([matrix, vector[:, :, None]], axis=2).transpose(1, 2, 0))
    diagonal = np.arange(n)
    a[diagonal, diagonal] += 1e-3 * a[diagonal, diagonal] + 1.0
    for i in range(n):
        a[i, i:] /= a[i, i].copy()
        factor = a[:, i].copy()
        factor[i] = 0
        a[:, i:] -= factor[:, None] * a[i, i:]
    solution: Array = np.ascontiguousarray(a[:, n].T)
    return solution


def rounded(weights: Array) -> Array:
    """Weights as they travel."""
    result: Array = np.clip(np.rint(weights * UNIT), -127, 127).astype(np.int8)
    return result
