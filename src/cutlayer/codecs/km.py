"""`km`: k-means quantization."""

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs import fields
from cutlayer.codecs.base import Codec, Reader, Writer, accept
from cutlayer.codecs.kernels.dispatch import check
from cutlayer.codecs.sparse import scope_field
from cutlayer.codecs.tensors import Tensor

_GRID = 1 << 16


@dataclass(frozen=True)
class KMeans(Codec):
    """Quantize to centroids that Lloyd's algorithm finds in one dimension.

    Elements are first rounded to a grid of 2^16 levels. On the grid's histogram a step of Lloyd's algorithm
    costs 2^bits operations, whatever the size of the tensor. Sums are integers, so the result does not depend
    on the order of elements or the number of threads.
    """

    name: ClassVar[str] = "km"
    id: ClassVar[int] = 7
    advice: ClassVar[str] = "the least error among plain quantizers of the same bits; slower to encode"
    signs: ClassVar[bool] = False

    bits: int = fields.integer(3, 1, 8, "bits an element")
    iterations: int = fields.integer(10, 0, 255, "steps of Lloyd's algorithm at most", shown=False)
    scope: str = scope_field()

    def payload_bytes(self, shape: tuple[int, ...], signed: bool = False) -> int:
        """2^bits centroids and ceil(d bits / 8) a section."""
        rows, d = self.sections(shape)
        return rows * (4 * (1 << self.bits) + (d * self.bits + 7) // 8)

    def write(self, x: Tensor, writer: Writer) -> bytes:
        """See `Codec.write`."""
        ranges = writer.kernels.ranges(x)
        accept(max(r.largest for r in ranges), writer)
        opened, offset = writer.open(self, self.payload_bytes(writer.source.shape))
        sections = []
        for row, r in zip(x, ranges, strict=True):
            centroids, cluster = lloyd(
                writer.kernels.km_histogram(row, r.lo, r.hi), 2**self.bits, self.iterations
            )
            step = (r.hi - r.lo) / (_GRID - 1)
            levels = np.array([r.lo + c * step for c in centroids]).astype(np.float32)
            sections.append((row, r, levels, cluster))
        size = self.payload_bytes(writer.source.shape) // len(sections)
        for i, (row, r, levels, cluster) in enumerate(sections):
            at = offset + i * size
            writer.kernels.put_bytes(opened, at, struct.pack(f"<{len(levels)}f", *levels.tolist()))
            writer.kernels.km_encode(row, r.lo, r.hi, cluster, self.bits, opened, at + 4 * len(levels))
        return writer.close(opened)

    def read(self, reader: Reader, out: Tensor) -> None:
        """See `Codec.read`."""
        at = reader.header.payload_offset
        check(reader.kernels.km_decode(reader.data, at, self.bits, out))


def lloyd(histogram: NDArray[Any], clusters: int, iterations: int) -> tuple[list[float], bytes]:
    """Run Lloyd's algorithm on a histogram.

    Returns centroids, in grid levels, and the cluster of each level.
    """
    count = [0, *histogram.cumsum(0).tolist()]
    total = [0, *(histogram * np.arange(_GRID)).cumsum(0).tolist()]
    centroids = [(j + 0.5) * (_GRID - 1) / clusters for j in range(clusters)]
    for _ in range(iterations):
        ends = _ends(centroids)
        moved = [
            (total[end] - total[start]) / (count[end] - count[start]) if count[end] > count[start] else c
            for c, start, end in zip(centroids, [0, *ends], ends, strict=False)
        ]
        if moved == centroids:
            break
        centroids = moved
    ends = _ends(centroids)
    sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    return centroids, b"".join(bytes([j]) * size for j, size in enumerate(sizes))


def _ends(centroids: list[float]) -> list[int]:
    """Where each cluster ends on the grid: half way to the next centroid. A tie goes to the lower one."""
    half = [int((a + b) / 2) + 1 for a, b in pairwise(centroids)]
    return [*half, _GRID]
