"""The 8 x 8 DCT of `ems`: its constants, and the shape of the coefficients (FORMAT.md, "Transform").

Channels are also rotated by PCA (`pca`). The transform itself is done by the kernels.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs.entropy.pca import MAX_CHANNELS
from cutlayer.codecs.entropy.section_shape import SectionShape

BLOCK = 8
# The largest coefficient as the bits of each type of values (2^80, or the largest float16), and the limit of
# steps: with these no sum can overflow.
MAX_COEFFICIENT_BITS = (0x67800000, 0x7BFF, 0x6780)
MAX_STEP = 2.0**90

Array = NDArray[Any]

# The DCT-II matrix, frequency u by position i: cos(pi u (2 i + 1) / 16) / 2, or 1 / sqrt(8) for u = 0.
# Integers over 2^16, so that every machine has the same. Positions 4 to 7 follow by symmetry.
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


def dct_applies(shape: SectionShape) -> bool:
    """Whether a section can be transformed: planes of at least one block, and not too many channels."""
    large = shape.height >= BLOCK and shape.width >= BLOCK
    return large and shape.channels <= MAX_CHANNELS and shape.d % shape.sample == 0


def coefficient_shape(shape: SectionShape) -> SectionShape:
    """The shape of a section's coefficients.

    Each frequency of each rotated channel is a channel. Its plane has one element for each block.
    """
    down, across = -(-shape.height // BLOCK), -(-shape.width // BLOCK)
    channels = shape.channels * BLOCK * BLOCK
    return SectionShape(shape.samples * channels * down * across, channels, down, across)
