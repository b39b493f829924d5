"""PCA across channels (the KLT of a section): an orthogonal matrix that gathers the energy in few channels.

It is fitted to each section and stored in it, as integers over 2^15. Row 0 is the axis of most energy, and
so on.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs.entropy.section_shape import SectionShape
from cutlayer.codecs.tensors import Tensor, host

ROTATION_UNIT = 1 << 15  # entries of a rotation are multiples of 1/2^15
MAX_CHANNELS = 128  # with more, finding a rotation takes seconds
_POSITIONS = 1 << 14  # that a rotation is fitted to
_SWEEPS = 6
_TOLERANCE = 1e-6  # off-diagonal entries, relative to the largest diagonal entry, at which the sweeps stop

Array = NDArray[Any]


def channel_rotation(x: Tensor, shape: SectionShape, largest: float) -> Array:
    """Principal axes of a section's channels as rows, by falling energy; int16, in 1/ROTATION_UNIT.

    `largest` is the largest magnitude in the section.
    """
    planes = x.reshape(-1, shape.channels, shape.height * shape.width)
    # An odd stride takes other columns in every row. (The right neighbour of a row's end is the next row's
    # start.)
    stride = planes.shape[0] * planes.shape[2] // _POSITIONS | 1
    last = planes.shape[2] - shape.width
    here, right, below = (
        np.rint(host(planes[:, :, i : last + i : stride]).astype(np.float64) * (32767.0 / largest))
        for i in (0, 1, shape.width)
    )
    # The DCT removes what neighbours have in common, so most bits code differences: these weigh three times
    # as much.
    parts = [
        p.swapaxes(0, 1).reshape(shape.channels, -1) for p in (here, 3 * (right - here), 3 * (below - here))
    ]
    # Sums of integers, which float64 holds exactly: the order of additions does not matter.
    covariance: Array = np.sum([p @ p.T for p in parts], axis=0)
    axes = np.rint(_eigenvectors(covariance) * ROTATION_UNIT)
    found: Array = axes.clip(1 - ROTATION_UNIT, ROTATION_UNIT - 1).astype(np.int16)
    return found


def _eigenvectors(a: Array) -> Array:
    """Approximate eigenvectors of a symmetric matrix as rows, by falling eigenvalue; always orthogonal.

    The cyclic Jacobi method, with all disjoint pairs of a round at once. Plain arithmetic and no library
    call, so that every machine finds the same.
    """
    n = len(a)
    even = n + n % 2  # an odd size gets one empty row, so that every row has a partner
    work, vectors = np.zeros((even, even)), np.eye(even)
    work[:n, :n] = a
    order = np.arange(even)
    for _ in range(_SWEEPS):
        diagonal = np.diag(work)
        if even < 2 or np.abs(work - np.diag(diagonal)).max() <= _TOLERANCE * np.abs(diagonal).max():
            break
        for _ in range(even - 1):
            p, q = order[: even // 2], order[even // 2 :][::-1]
            _jacobi_rotation(work, vectors, p, q)
            order = np.concatenate([order[:1], order[-1:], order[1:-1]])
    rows: Array = vectors[:n, :n][np.argsort(-np.diag(work)[:n], kind="stable")]
    return rows


def _jacobi_rotation(a: Array, vectors: Array, p: Array, q: Array) -> None:
    """Rotate the axes of each pair (p, q) so that the off-diagonal entry a[p, q] becomes 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        theta = (a[q, q] - a[p, p]) / (2 * a[p, q])
        t = np.where(theta < 0, -1.0, 1.0) / (np.abs(theta) + np.sqrt(theta * theta + 1))
    t = np.where(a[p, q] == 0, 0.0, t)[:, None]
    c = 1 / np.sqrt(t * t + 1)
    s = t * c
    for rows in (vectors, a, a.T):
        left, right = rows[p], rows[q]
        rows[p], rows[q] = c * left - s * right, s * left + c * right
