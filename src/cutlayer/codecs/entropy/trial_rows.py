"""The subset of a section on which rate control tries step sizes: some rows of all samples, evenly spread.

Samples differ, so a few rows of many samples estimate rate and error better than all rows of a few samples.
Each row is taken with the rows above and below it, because contexts and reconstruction points depend on
neighbours. Only the middle row is counted.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs.entropy.context_model import fit_positions, weights_per_channel
from cutlayer.codecs.entropy.section_shape import SectionShape

_MIN_ELEMENTS = 1 << 16  # counted elements, at least
_SHARE = 24  # one element in 24 is counted, if that is more
_FIT_SHARE = 4  # at most one element in 4 is taken for the sake of a fit
_GOLDEN_RATIO = (5**0.5 - 1) / 2

Rows = tuple[int, int]  # the counted rows of each plane: the first, and the one behind the last


@dataclass(frozen=True, eq=False)
class TrialRows:
    """Strips of rows.

    A strip has a few rows of all channels of one sample, and takes the place of a sample.
    """

    shape: SectionShape  # of all strips together
    rows: Rows  # the rows of each strip that are counted
    where: NDArray[Any] | None = None  # int64 (strips, 2): sample and first row; None if all rows are taken

    @property
    def counted(self) -> int:
        """Elements in the counted rows."""
        return self.shape.d // self.shape.height * (self.rows[1] - self.rows[0])


def all_rows(shape: SectionShape) -> TrialRows:
    """The whole section."""
    return TrialRows(shape, (0, shape.height))


@lru_cache(maxsize=64)
def trial_rows(shape: SectionShape) -> TrialRows:
    """A subset of a section, or the whole section if a subset would not save much work."""
    # Rows of a strip, uncounted rows before the counted ones, counted rows. Planes of up to 3 rows are taken
    # whole.
    band, before, count = (3, 1, 1) if shape.height > 3 else (shape.height, 0, shape.height)
    row = shape.channels * shape.width
    strips = shape.d // shape.sample * shape.height // count
    # Context models are fitted to these rows.
    fit = fit_positions(shape.channels) * shape.channels if weights_per_channel(shape) else 0
    fit = min(fit, shape.d * count // (_FIT_SHARE * band))
    wanted = -(-max(_MIN_ELEMENTS, shape.d // _SHARE, fit) // (row * count))
    if 2 * wanted * band * row > shape.d:
        return all_rows(shape)
    # One strip in each of `wanted` equal intervals. The golden-ratio sequence varies its position within the
    # interval, so that no row of the planes is preferred.
    each = np.arange(wanted)
    at = count * np.floor((each + each * _GOLDEN_RATIO % 1.0) * (strips / wanted)).astype(np.int64)
    where = np.stack([at // shape.height, at % shape.height - before], axis=1)
    strip = SectionShape(wanted * band * row, shape.channels, band, shape.width)
    return TrialRows(strip, (before, before + count), where)
