"""How a section's elements lie in samples, channels, rows and lanes (FORMAT.md, "ems")."""

import math
from dataclasses import dataclass
from functools import lru_cache

LANES = 32  # coded in step with each other, in one block
LANE = 8192  # elements that a lane has at least, if there are enough
LINE = 8192  # elements of a row where the tensor has no rows of its own


@dataclass(frozen=True)
class Geometry:
    """d elements as samples of `channels` planes of `height` rows. Only the last row may be short, and only
    where a sample is one row."""

    d: int
    channels: int
    height: int
    width: int

    @property
    def sample(self) -> int:
        """Elements of a sample."""
        return self.channels * self.height * self.width

    @property
    def samples(self) -> int:
        """Samples, the last one perhaps short."""
        return -(-self.d // self.sample)

    @property
    def per_lane(self) -> int:
        """Samples that one lane codes, one after the other."""
        return max(1, LANE // self.sample)

    @property
    def lanes(self) -> int:
        """Lanes of all blocks."""
        return -(-self.samples // self.per_lane)

    @property
    def blocks(self) -> int:
        """Blocks, which are coded alone."""
        return -(-self.lanes // LANES)

    def thinned(self, elements: int) -> tuple["Geometry", int]:
        """About so many elements' worth of samples, evenly spread: their geometry, and the stride."""
        stride = max(1, self.d // max(elements, self.sample))
        whole = self.d // self.sample
        if stride == 1 or whole < 2 * stride:
            return self, 1
        return Geometry(-(-whole // stride) * self.sample, self.channels, self.height, self.width), stride


@lru_cache(maxsize=256)
def geometry(shape: tuple[int, ...], sections: int) -> Geometry:
    """The geometry of one of so many equal sections of a tensor."""
    d = math.prod(shape) // sections
    if len(shape) >= 4:
        return Geometry(d, math.prod(shape[1:-2]), shape[-2], shape[-1])
    if len(shape) == 3:
        return Geometry(d, 1, shape[1], shape[2])
    return Geometry(d, 1, 1, shape[1] if len(shape) == 2 else LINE)
