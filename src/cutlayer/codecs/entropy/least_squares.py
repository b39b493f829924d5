"""Least-squares fit of the context model's weights, from a subsample of the levels.

The compiled kernels do the same arithmetic in the same order, so that both find the same weights.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs.entropy.context_model import (
    FIT_ELEMENTS,
    MAX_PARENT_DISTANCE,
    NEIGHBOURS,
    PARENTS,
    WEIGHT_UNIT,
    ContextModel,
    default_model,
    fit_positions,
    level_shift,
)
from cutlayer.codecs.entropy.section_shape import SectionShape
from cutlayer.codecs.entropy.trial_rows import Rows
from cutlayer.codecs.tensors import Tensor, host

Array = NDArray[Any]


@dataclass(frozen=True)
class Subsample:
    """The positions that a fit uses: every `stride`-th sample, and every `thin`-th row and column in it."""

    stride: int
    thin: int
    count: int  # positions of each channel


def subsample(shape: SectionShape, rows: Rows, per_channel: bool) -> Subsample | None:
    """Positions for a fit among the counted `rows`; None if the section is too small for one.

    Samples are left out first, since that is cheap, and rows and columns only if samples alone do not
    suffice.
    """
    whole, area = shape.d // shape.sample, (rows[1] - rows[0]) * shape.width
    if whole == 0 or shape.d < 64:
        return None
    wanted = fit_positions(shape.channels) if per_channel else FIT_ELEMENTS
    if rows != (0, shape.height):  # trial rows, which are spread over the section already
        stride = max(1, whole * area // wanted)
        # Thin out only if a single strip has more positions than are wanted.
        thin = max(1, area // (4 * wanted))
        return Subsample(stride, thin, -(-whole // stride) * _thinned(rows, shape.width, thin))
    stride = max(1, whole * area // (4 * wanted))
    samples = -(-whole // stride)
    thin = max(1, math.ceil((samples * area / wanted) ** 0.5))
    return Subsample(stride, thin, samples * _thinned(rows, shape.width, thin))


def _thinned(rows: Rows, width: int, thin: int) -> int:
    return -(-(rows[1] - rows[0]) // thin) * -(-width // thin)


def fit_weights(
    levels: Tensor, shape: SectionShape, rows: Rows, n_levels: int, per_channel: bool
) -> ContextModel:
    """Fit the weights to levels (uint8, d elements, at most `n_levels`) in the counted rows.

    `per_channel`: a row of weights for each channel, with parents; else one row for all, without.
    """
    used = subsample(shape, rows, per_channel)
    if used is None:
        return default_model()
    whole, thin = shape.d // shape.sample * shape.sample, used.thin
    a = host(levels)[:whole].reshape(-1, shape.channels, shape.height, shape.width)
    a = a[:: used.stride] >> level_shift(n_levels)
    padded = np.pad(a, ((0, 0), (0, 0), (1, 0), (1, 1)))[:, :, rows[0] : rows[1] + 1]
    height, width = rows[1] - rows[0], shape.width
    features: Array = np.ones(
        (shape.channels, 2 + NEIGHBOURS, a.shape[0], -(-height // thin), -(-width // thin)), np.uint8
    )
    # Feature 0 is the constant; then left, above, above left, above right; the last is the level itself.
    for i, (y, x) in enumerate(((1, 0), (0, 1), (0, 0), (0, 2), (1, 1))):
        features[:, i + 1] = padded[:, :, y : y + height : thin, x : x + width : thin].swapaxes(0, 1)
    features = features.reshape(shape.channels, 2 + NEIGHBOURS, -1)
    if not per_channel:
        features = features.swapaxes(0, 1).reshape(1, 2 + NEIGHBOURS, -1)
    return _fit(features, per_channel)


def _fit(features: Array, per_channel: bool) -> ContextModel:
    """Solve for the weights of each channel.

    `features` is (channels, features with the level last, positions).
    """
    channels, n = features.shape[0], 1 + NEIGHBOURS
    moments = _dots(features, features)
    left, right = moments[:, :n, :n], moments[:, :n, n]
    solved = solve(left, right)
    if not per_channel:
        return ContextModel(quantize_weights(solved), np.zeros((1, 0), np.uint8), np.zeros((1, 0), np.int8))
    here = np.ascontiguousarray(features[:, n])
    # The sum of feature i of channel c times the level of channel p, at (i, c, p).
    cross = _dots(features.reshape(channels * (n + 1), -1), here)
    cross = np.ascontiguousarray(cross.reshape(channels, n + 1, channels).swapaxes(0, 1))
    levels = cross[n]
    each = np.arange(channels)
    back = each[:, None] - each[None, :]
    allowed = (back > 0) & (back <= MAX_PARENT_DISTANCE)
    energy = levels[each, each] - cross[0][each, each] ** 2 / here.shape[1] + 1e-9
    # The correlation of each candidate's level with the residual that the neighbours leave of each channel.
    residual = levels - sum(solved[:, i, None] * cross[i] for i in range(n))
    chosen = np.zeros((channels, min(PARENTS, channels - 1)), np.int64)
    for j in range(chosen.shape[1]):
        # Greedy selection: the candidate that explains most of the residual becomes a parent; remove its
        # part.
        chosen[:, j] = best = np.where(allowed, residual * residual / energy, -1.0).argmax(1)
        allowed[each, best] = False
        centred = levels[best] - cross[0][each, best, None] * cross[0] / here.shape[1]
        residual = residual - (residual[each, best] / energy[best])[:, None] * centred
    solved = solve(*_with_parents(left, right, cross[:n], levels, chosen))
    weight = np.where(chosen < each[:, None], quantize_weights(solved[:, n:]), 0)
    distance = np.where(weight != 0, each[:, None] - chosen, 0)
    far = distance > MAX_PARENT_DISTANCE
    return ContextModel(
        quantize_weights(solved[:, :n]),
        np.where(far, 0, distance).astype(np.uint8),
        np.where(far, 0, weight).astype(np.int8),
    )


def _dots(a: Array, b: Array) -> Array:
    """Dot products of rows of small integers: exact in float64, whatever the order of sums."""
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
        # A channel with fewer candidates than parents gets an empty equation instead.
        alone = p >= each
        matrix[alone, own + j, :] = matrix[alone, :, own + j] = vector[alone, own + j] = 0
    return matrix, vector


def solve(matrix: Array, vector: Array) -> Array:
    """Solve many small positive semi-definite systems by Gauss-Jordan elimination, with a little ridge.

    Plain arithmetic and no library call, so that every machine finds the same weights.
    """
    n = vector.shape[1]
    # Systems are the last axis: NumPy then works on long rows.
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


def quantize_weights(weights: Array) -> Array:
    """Weights as int8 multiples of 1 / WEIGHT_UNIT."""
    result: Array = np.clip(np.rint(weights * WEIGHT_UNIT), -127, 127).astype(np.int8)
    return result
