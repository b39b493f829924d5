"""`fedlite`: FedLite (2022), product quantization of each batch with codebooks of its own."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs import fields
from cutlayer.codecs.entropy.layout import malformed
from cutlayer.codecs.kernels.interface import Kernels
from cutlayer.codecs.rivals.base import PayloadReader, Rival, as_channels, bit_stream

_STREAM = 7  # of the random words that choose the first centroids
_FITTED = 1 << 14  # subvectors to which a codebook is fitted, at most
_CHUNK = 1 << 21  # distances that are computed at a time
_GRID = 2.0**-40  # of the largest distance: ties are decided by order, not by rounding

Array = NDArray[Any]


@dataclass(frozen=True)
class ProductQuantization(Rival):
    """Cut each sample into subvectors, and replace each by the nearest centroid of k-means.

    Subvectors are divided, by their place in the sample, into `groups` of equal size. Each group has a
    codebook of `clusters` centroids, fitted to the batch.
    """

    name: ClassVar[str] = "fedlite"
    id: ClassVar[int] = 33
    advice: ClassVar[str] = "a rival (FedLite): product quantization, a codebook a batch"
    fixed_size: ClassVar[bool] = True

    size: int = fields.integer(8, 1, 65535, "elements of a subvector")
    clusters: int = fields.integer(16, 2, 1024, "centroids of a codebook")
    groups: int = fields.integer(1, 1, 255, "codebooks", shown=False)
    iterations: int = fields.integer(5, 1, 255, "rounds of k-means", shown=False, in_header=False)
    seed: int = fields.seed()

    def _plan(self, shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """Groups, subvectors of a sample in each group, and bits of an index."""
        count = -(-(shape[1] * shape[2]) // self.size)
        groups = min(self.groups, count)
        return groups, -(-count // groups), (self.clusters - 1).bit_length()

    def payload_bytes(self, shape: tuple[int, ...], signed: bool = False) -> int:
        """See `Codec.payload_bytes`."""
        full = as_channels(shape)
        groups, each, width = self._plan(full)
        return groups * (self.clusters * self.size * 4 + (full[0] * each * width + 7) // 8)

    def compress(self, x: Array, seed: int, kernels: Kernels) -> bytes:
        """See `Rival.compress`."""
        n, (groups, each, width) = x.shape[0], self._plan((x.shape[0], x.shape[1], x.shape[2]))
        padded = np.zeros((n, groups * each * self.size))
        padded[:, : x[0].size] = x.reshape(n, -1)
        subvectors = padded.reshape(n, groups, each, self.size).transpose(1, 0, 2, 3)
        parts = []
        for g, vectors in enumerate(subvectors.reshape(groups, n * each, self.size)):
            centroids = self._fit(vectors, seed, g, kernels)
            codes = _nearest(vectors, centroids.astype(np.float64))
            parts += [centroids.astype("<f4").tobytes(), bit_stream(codes, width, kernels)]
        return b"".join(parts)

    def _fit(self, vectors: Array, seed: int, group: int, kernels: Kernels) -> Array:
        """The centroids of k-means on a subsample, float32."""
        some = vectors[:: -(-len(vectors) // _FITTED)]
        draw = kernels.random_words(seed, _STREAM, group, 0, self.clusters)
        # One in each of `clusters` equal intervals; with few vectors, some centroids are equal.
        at = (np.arange(self.clusters) + draw / 2.0**32) * len(some) / self.clusters
        centroids = some[at.astype(np.int64)].copy()
        for _ in range(self.iterations):
            codes = _nearest(some, centroids)
            counts = np.bincount(codes, minlength=self.clusters)
            sums = np.stack([np.bincount(codes, column, self.clusters) for column in some.T], axis=1)
            centroids[counts > 0] = sums[counts > 0] / counts[counts > 0, None]
        return centroids.astype(np.float32)

    def expand(self, payload: PayloadReader, shape: tuple[int, int, int]) -> Array:
        """See `Rival.expand`."""
        n, d = shape[0], shape[1] * shape[2]
        groups, each, width = self._plan(shape)
        found = []
        for _ in range(groups):
            centroids = payload.floats(self.clusters * self.size).reshape(self.clusters, self.size)
            codes = payload.codes(n * each, width)
            if int(codes.max()) >= self.clusters:
                raise malformed("an index points beyond the codebook")
            found.append(centroids[codes].reshape(n, each * self.size))
        return np.concatenate(found, axis=1)[:, :d]


def _nearest(vectors: Array, centroids: Array) -> Array:
    """The index of the nearest centroid of each vector; of equally near ones, the first."""
    squares = (centroids * centroids).sum(1)
    found = np.empty(len(vectors), np.int64)
    step = max(1, _CHUNK // len(centroids))
    for at in range(0, len(vectors), step):
        distance = squares - 2 * (vectors[at : at + step] @ centroids.T)
        unit = _GRID * max(float(np.abs(distance).max()), 2.0**-900)
        found[at : at + step] = np.rint(distance / unit).argmin(1)
    return found
