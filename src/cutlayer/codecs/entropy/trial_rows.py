"""The part of a section on which a search tries steps: some rows of all samples, evenly spread.

Rows of many samples say more about the whole than all rows of few samples: samples differ. Each row comes
with those above and below it, as levels are coded, and decoded, by their neighbours; only the row counts.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs.entropy.section_shape import Geometry

_ELEMENTS = 1 << 16  # that count, at least
_SHARE = 24  # one element in so many counts, if that is more
_GOLDEN = (5**0.5 - 1) / 2

Rows = tuple[int, int]  # of each plane, from the first up to the last


@dataclass(frozen=True, eq=False)
class Part:
    """`where`: the sample and the first row of each strip (int64), or nothing if the part is the whole."""

    shape: Geometry  # strips as samples
    rows: Rows  # that count
    where: NDArray[Any] | None = None

    @property
    def counted(self) -> int:
        """Elements that count."""
        return self.shape.d // self.shape.height * (self.rows[1] - self.rows[0])


def whole(shape: Geometry) -> Part:
    """All elements."""
    return Part(shape, (0, shape.height))


@lru_cache(maxsize=64)
def part(shape: Geometry) -> Part:
    """A part of a section, if that is much less work."""
    # Rows of a strip, those before the one that counts, and those that count; low planes are taken whole.
    band, before, count = (3, 1, 1) if shape.height > 3 else (shape.height, 0, shape.height)
    row = shape.channels * shape.width
    strips = shape.d // shape.sample * shape.height // count
    wanted = -(-max(_ELEMENTS, shape.d // _SHARE) // (row * count))
    if 2 * wanted * band * row > shape.d:
        return whole(shape)
    # One in each of equal stretches of rows, at another place in each, so that no row of planes is preferred.
    each = np.arange(wanted)
    at = count * np.floor((each + each * _GOLDEN % 1.0) * (strips / wanted)).astype(np.int64)
    where = np.stack([at // shape.height, at % shape.height - before], axis=1)
    strip = Geometry(wanted * band * row, shape.channels, band, shape.width)
    return Part(strip, (before, before + count), where)
