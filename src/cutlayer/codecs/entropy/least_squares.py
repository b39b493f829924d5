"""Weights of a prediction by least squares, from a part of the levels.

The compiled kernels do the same operation by operation, so that both find the same weights.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cutlayer.codecs.entropy.context_model import (
    FARTHEST,
    NEIGHBOURS,
    PARENTS,
    UNIT,
    Model,
    coarse,
    flat_model,
)
from cutlayer.codecs.entropy.section_shape import Geometry
from cutlayer.codecs.entropy.trial_rows import Rows

_WORTH = 3000  # elements that a channel must have for a row of weights to pay
_ELEMENTS = 1 << 16  # that a fit looks at

Array = NDArray[Any]


@dataclass(frozen=True)
class Places:
    """What a fit looks at: every so manyth sample, and in its rows that count every so manyth place."""

    stride: int
    thin: int
    count: int  # of a channel


def worth_rows(shape: Geometry) -> bool:
    """Whether each channel shall have weights of its own."""
    return shape.channels > 1 and shape.d >= _WORTH * shape.channels


def places(shape: Geometry, rows: Rows, own: bool) -> Places | None:
    """Whole samples while they last, then every other place: cheap to cut out, and spread over the tensor.

    Where only some rows count, these are spread already.
    """
    whole, area = shape.d // shape.sample, (rows[1] - rows[0]) * shape.width
    if whole == 0 or shape.d < 64:
        return None
    wanted = max(1, _ELEMENTS // (shape.channels if own else 1))
    if rows != (0, shape.height):
        stride = max(1, whole * area // wanted)
        # Only rows that are longer than all that is wanted are thinned.
        thin = max(1, area // (4 * wanted))
        return Places(stride, thin, -(-whole // stride) * _thinned(rows, shape.width, thin))
    stride = max(1, whole * area // (4 * wanted))
    samples = -(-whole // stride)
    thin = max(1, math.ceil((samples * area / wanted) ** 0.5))
    return Places(stride, thin, samples * _thinned(rows, shape.width, thin))


def _thinned(rows: Rows, width: int, thin: int) -> int:
    return -(-(rows[1] - rows[0]) // thin) * -(-width // thin)


def fit(levels: Tensor, shape: Geometry, rows: Rows, most: int, own: bool) -> Model:
    """Weights by least squares, from some of the levels (uint8, d elements, at most `most`) in these rows.

    `own`: a row of weights for each channel, with parents.
    """
    look = places(shape, rows, own)
    if look is None:
        return flat_model()
    whole, thin = shape.d // shape.sample * shape.sample, look.thin
    a = levels.cpu().numpy()[:whole].reshape(-1, shape.channels, shape.height, shape.width)
    a = a[:: look.stride] >> coarse(most)
    framed = np.pad(a, ((0, 0), (0, 0), (1, 0), (1, 1)))[:, :, rows[0] : rows[1] + 1]
    height, width = rows[1] - rows[0], shape.width
    features: Array = np.ones(
        (shape.channels, 2 + NEIGHBOURS, a.shape[0], -(-height // thin), -(-width // thin)), np.uint8
    )
    for i, (y, x) in enumerate(((1, 0), (0, 1), (0, 0), (0, 2), (1, 1))):  # left to above right, and itself
        features[:, i + 1] = framed[:, :, y : y + height : thin, x : x + width : thin].swapaxes(0, 1)
    features = features.reshape(shape.channels, 2 + NEIGHBOURS, -1)
    return _fitted(features if own else features.swapaxes(0, 1).reshape(1, 2 + NEIGHBOURS, -1), own)


def _fitted(features: Array, own: bool) -> Model:
    """Weights for each channel of (channels, own features and the level itself, places)."""
    channels, n = features.shape[0], 1 + NEIGHBOURS
    moments = _dots(features, features)
    left, right = moments[:, :n, :n], moments[:, :n, n]
    solved = solve(left, right)
    if not own:
        return Model(rounded(solved), np.zeros((1, 0), np.uint8), np.zeros((1, 0), np.int8))
    here = np.ascontiguousarray(features[:, n])
    # The sum of feature i of channel c times the level of channel p, at (i, c, p).
    cross = _dots(features.reshape(channels * (n + 1), -1), here)
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


def _dots(a: Array, b: Array) -> Array:
    """Products of the rows of two matrices of small integers, or of many, added up: exact in any order."""
    result: Array = a.astype(np.float64) @ b.astype(np.float64).swapaxes(-1, -2)
    return result


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
