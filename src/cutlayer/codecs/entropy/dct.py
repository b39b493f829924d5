"""What smooth maps are before they are coded: cosines of 8 x 8 blocks, of channels rotated into each other.

The rotation is fitted to each section: its first row gathers as much of the energy as one channel can, and so
on. It travels in 1/2^15. Cosines are integers over 2^16, so that every machine has the same.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cutlayer.codecs.entropy.section_shape import Geometry

BLOCK = 8
UNIT = 1 << 15  # what 1 is in a rotation
MOST_CHANNELS = 128  # beyond, finding a rotation takes seconds
# Coefficients are at most 2^80 (or the largest float16), as bits of each type of values, steps below 2^90:
# no sum of theirs can overflow.
LARGEST = (0x67800000, 0x7BFF, 0x6780)
MOST_STEP = 2.0**90
_PLACES = 1 << 14  # that a rotation is fitted to
_SWEEPS = 6
_SMALL = 1e-6  # entries off the diagonal that are left

Array = NDArray[Any]

# cos(pi u (2 i + 1) / 16) / 2, and 1 / sqrt(8) for u = 0, in 1/2^16. Places 4 to 7 mirror these.
COSINES: Array = np.array(
    [
        [23170, 23170, 23170, 23170],
        [32138, 27246, 18205, 6393],
        [30274, 12540, -12540, -30274],
        [27246, -6393, -32138, -18205],
        [23170, -23170, -23170, 23170],
        [18205, -32138, 6393, 27246],
        [12540, -30274, 30274, -12540],
        [6393, -18205, 27246, -32138],
    ],
    np.float32,
) / np.float32(1 << 16)


def transformable(shape: Geometry) -> bool:
    """Whether a section has planes of at least one block, so that filling up blocks stays cheap."""
    large = shape.height >= BLOCK and shape.width >= BLOCK
    return large and shape.channels <= MOST_CHANNELS and shape.d % shape.sample == 0


def coefficients(shape: Geometry) -> Geometry:
    """How coefficients lie: each frequency of each rotated channel is a channel, each block an element."""
    down, across = -(-shape.height // BLOCK), -(-shape.width // BLOCK)
    channels = shape.channels * BLOCK * BLOCK
    return Geometry(shape.samples * channels * down * across, channels, down, across)


def rotation(x: Tensor, shape: Geometry, largest: float) -> Array:
    """The axes of a section's channels, by falling energy, in 1/UNIT; `largest` is its largest magnitude."""
    planes = x.view(-1, shape.channels, shape.height * shape.width)
    # Some places of all samples, in other columns of every row. (At the end of a row, the next begins.)
    thin = planes.shape[0] * planes.shape[2] // _PLACES | 1
    last = planes.shape[2] - shape.width
    here, right, below = (
        np.rint(planes[:, :, i : last + i : thin].cpu().numpy().astype(np.float64) * (32767.0 / largest))
        for i in (0, 1, shape.width)
    )
    # Blocks take out what neighbours have in common, so that most bits go into how they differ.
    parts = [
        p.swapaxes(0, 1).reshape(shape.channels, -1) for p in (here, 3 * (right - here), 3 * (below - here))
    ]
    # Of integers, which float64 adds up exactly in whatever order.
    energy: Array = np.sum([p @ p.T for p in parts], axis=0)
    found: Array = np.rint(_axes(energy) * UNIT).clip(1 - UNIT, UNIT - 1).astype(np.int16)
    return found


def _axes(a: Array) -> Array:
    """Nearly the eigenvectors of a symmetric matrix, as rows, by falling eigenvalue; always a rotation.

    Jacobi's method, all disjoint pairs of a round at once: plain arithmetic and no library call, so that
    every machine finds the same.
    """
    n = len(a)
    even = n + n % 2  # one more row that nothing belongs to, so that all have a partner
    work, vectors = np.zeros((even, even)), np.eye(even)
    work[:n, :n] = a
    order = np.arange(even)
    for _ in range(_SWEEPS):
        diagonal = np.diag(work)
        if even < 2 or np.abs(work - np.diag(diagonal)).max() <= _SMALL * np.abs(diagonal).max():
            break
        for _ in range(even - 1):
            p, q = order[: even // 2], order[even // 2 :][::-1]
            _turn(work, vectors, p, q)
            order = np.concatenate([order[:1], order[-1:], order[1:-1]])
    rows: Array = vectors[:n, :n][np.argsort(-np.diag(work)[:n], kind="stable")]
    return rows


def _turn(a: Array, vectors: Array, p: Array, q: Array) -> None:
    """Rotate the axes of each pair so that its entry off the diagonal vanishes."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        theta = (a[q, q] - a[p, p]) / (2 * a[p, q])
        t = np.where(theta < 0, -1.0, 1.0) / (np.abs(theta) + np.sqrt(theta * theta + 1))
    t = np.where(a[p, q] == 0, 0.0, t)[:, None]
    c = 1 / np.sqrt(t * t + 1)
    s = t * c
    for rows in (vectors, a, a.T):
        left, right = rows[p], rows[q]
        rows[p], rows[q] = c * left - s * right, s * left + c * right
