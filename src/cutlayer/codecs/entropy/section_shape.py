"""The shape of a section: samples, channels, rows and columns, and its rANS lanes (FORMAT.md, "ems")."""

import math
from dataclasses import dataclass
from functools import lru_cache

LANES = 32  # rANS coders that are interleaved in one block
LANE_ELEMENTS = 8192  # elements that one lane codes at least, if there are enough
ROW_LENGTH = 8192  # elements of a row where the tensor has fewer than two dimensions


@dataclass(frozen=True)
class SectionShape:
    """d elements as samples of `channels` planes of `height` x `width`.

    Only a tensor of fewer than two dimensions can have a short last sample, which is then one short row.
    """

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
        """Samples, including a short last one."""
        return -(-self.d // self.sample)

    @property
    def per_lane(self) -> int:
        """Samples that one lane codes, one after the other."""
        return max(1, LANE_ELEMENTS // self.sample)

    @property
    def lanes(self) -> int:
        """Lanes of all blocks."""
        return -(-self.samples // self.per_lane)

    @property
    def blocks(self) -> int:
        """Blocks of up to `LANES` lanes. Each is decoded without the others."""
        return -(-self.lanes // LANES)

    def thinned(self, elements: int) -> tuple["SectionShape", int]:
        """Every n-th sample, about `elements` elements in all: the shape of these samples, and n."""
        stride = max(1, self.d // max(elements, self.sample))
        whole = self.d // self.sample
        if stride == 1 or whole < 2 * stride:
            return self, 1
        return SectionShape(-(-whole // stride) * self.sample, self.channels, self.height, self.width), stride


@lru_cache(maxsize=256)
def section_shape(shape: tuple[int, ...], sections: int) -> SectionShape:
    """The shape of one section of a tensor that is divided into `sections` equal ones."""
    d = math.prod(shape) // sections
    if len(shape) >= 4:
        return SectionShape(d, math.prod(shape[1:-2]), shape[-2], shape[-1])
    if len(shape) == 3:
        return SectionShape(d, 1, shape[1], shape[2])
    return SectionShape(d, 1, 1, shape[1] if len(shape) == 2 else ROW_LENGTH)
