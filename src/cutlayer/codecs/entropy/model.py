"""Which elements are likely to be large: a linear prediction from levels that are already known.

The prediction of an element weighs four neighbours in its plane (left, above, above left, above right) and,
where channels have rows of their own, the elements at the same place in up to four earlier channels. It
only chooses the statistics with which the element's level is coded; it never changes a decoded value.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutlayer.codecs.entropy.geometry import Geometry

UNIT = 32  # weights are multiples of 1/32
FINE = 128  # values of the quantized prediction
PARENTS = 4
NEIGHBOURS = 4
FARTHEST = 255  # channels back
_WORTH = 3000  # elements that a channel must have for a row of weights to pay
_ROWS = 1 << 17  # channels times places that a fit looks at

Array = NDArray[Any]


@dataclass(frozen=True)
class Model:
    """Weights, one row for all channels or one for each. A parent `distance` channels back has a weight."""

    weights: Array  # int8 (rows, 1 + NEIGHBOURS): constant, left, above, above left, above right
    distance: Array  # uint8 (rows, parents); 0 for none
    parent: Array  # int8 (rows, parents)

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


def fit(levels: Tensor, shape: Geometry, most: int) -> Model:
    """Weights by least squares, from a part of the levels (uint8, d elements, at most `most`)."""
    whole = shape.d // shape.sample
    if whole == 0 or shape.d < 64:
        return flat_model()
    a = (levels[: whole * shape.sample].view(whole, shape.channels, shape.height, shape.width) >> coarse(most)).cpu()
    own = shape.channels > 1 and shape.d >= _WORTH * shape.channels
    places = _ROWS // (shape.channels if own else 1)
    # Whole samples while they last, then every other place: cheap to cut out, and spread over the tensor.
    a = a[:: max(1, whole * shape.height * shape.width // (4 * places))]
    thin = max(1, math.ceil((a[:, 0].numel() / places) ** 0.5))
    around = [_picked(_moved(a, dy, dx), thin) for dy, dx in ((0, 1), (1, 0), (1, 1), (1, -1))]
    here = _picked(a, thin)
    return _own_rows(here, around) if own else _one_row(here, around)


def _moved(a: Tensor, dy: int, dx: int) -> Tensor:
    """Each place's neighbour dy above and dx to the left; 0 beyond the border."""
    result = torch.zeros_like(a)
    height, width = a.shape[2:]
    if dx >= 0:
        result[:, :, dy:, dx:] = a[:, :, : height - dy, : width - dx]
    else:
        result[:, :, dy:, :dx] = a[:, :, : height - dy, -dx:]
    return result


def _picked(a: Tensor, thin: int) -> Tensor:
    """Float (places, channels) of every `thin`-th row and column."""
    return a[:, :, ::thin, ::thin].permute(0, 2, 3, 1).reshape(-1, a.shape[1]).float()


def _one_row(here: Tensor, around: list[Tensor]) -> Model:
    features = torch.stack([torch.ones_like(here).reshape(-1), *(n.reshape(-1) for n in around)])
    moments = (features.double() @ torch.cat([features, here.reshape(1, -1)]).double().T).numpy()
    solved = _solve(moments[None, :, :-1], moments[None, :, -1])
    return Model(_rounded(solved), np.zeros((1, 0), np.uint8), np.zeros((1, 0), np.int8))


def _own_rows(here: Tensor, around: list[Tensor]) -> Model:
    channels = here.shape[1]
    # All sums are of integers: exact in float32 below 2^24, in float64 above, and in any order the same.
    if len(here) * float(here.max()) ** 2 >= 1 << 24:
        here, around = here.double(), [n.double() for n in around]
    with_all = np.stack([(n.T @ here).numpy() for n in (*around, here)]).astype(np.float64)
    sums = here.sum(0).double().numpy()
    count = float(len(here))
    own = 1 + NEIGHBOURS
    left = np.empty((channels, own, own))
    for i, n in enumerate((torch.ones_like(here), *around)):
        for j, m in enumerate((torch.ones_like(here), *around)):
            left[:, i, j] = (n * m).sum(0).double().numpy() if i <= j else left[:, j, i]
    diagonal = np.arange(channels)
    # Row i: the sum of feature i of channel c times the level of channel p, for all c and p.
    cross = np.concatenate([np.broadcast_to(sums, (1, channels, channels)), with_all[:NEIGHBOURS]])
    right = cross[:, diagonal, diagonal].T  # (channels, own)
    chosen = np.zeros((channels, 0), np.int64)
    energy = with_all[NEIGHBOURS][diagonal, diagonal] - sums * sums / count + 1e-9
    back = diagonal[:, None] - diagonal[None, :]
    allowed = (back > 0) & (back <= FARTHEST)
    solved = _solve(left, right)
    for _ in range(min(PARENTS, channels - 1)):
        # What is left of each channel, correlated with each candidate: the best one becomes a parent.
        rest = with_all[NEIGHBOURS].copy()
        for i in range(own):
            rest -= solved[:, i, None] * cross[i]
        for i in range(chosen.shape[1]):
            rest -= solved[:, own + i, None] * with_all[NEIGHBOURS][chosen[:, i]]
        score = np.where(allowed, rest * rest / energy, -1.0)
        best = score.argmax(1)
        allowed[diagonal, best] = False
        chosen = np.concatenate([chosen, best[:, None]], axis=1)
        solved = _solve(*_with_parents(left, right, cross, with_all[NEIGHBOURS], chosen))
    distance = diagonal[:, None] - chosen
    none = (distance <= 0) | (distance > FARTHEST)
    weight = np.where(none, 0, _rounded(solved[:, own:]))
    return Model(
        _rounded(solved[:, :own]),
        np.where(none | (weight == 0), 0, distance).astype(np.uint8),
        weight.astype(np.int8),
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


def _solve(matrix: Array, vector: Array) -> Array:
    """Many small positive semi-definite systems by elimination.

    Plain arithmetic and no library call, so that every machine finds the same weights.
    """
    n = vector.shape[1]
    a = np.concatenate([matrix, vector[:, :, None]], axis=2)
    diagonal = np.arange(n)
    a[:, diagonal, diagonal] += 1e-3 * a[:, diagonal, diagonal] + 1.0
    for i in range(n):
        a[:, i, i:] /= a[:, i, i, None]
        factor = a[:, :, i].copy()
        factor[:, i] = 0
        a[:, :, i:] -= factor[:, :, None] * a[:, None, i, i:]
    solution: Array = a[:, :, n]
    return solution


def _rounded(weights: Array) -> Array:
    return np.clip(np.rint(weights * UNIT), -127, 127).astype(np.int8)
