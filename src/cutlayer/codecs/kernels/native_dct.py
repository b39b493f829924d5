"""The compiled DCT and channel rotation of `ems`: passes addresses to the extension `cutlayer._native`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutlayer import _native as _n
from cutlayer.codecs.entropy.dct import coefficient_shape
from cutlayer.codecs.entropy.pca import ROTATION_UNIT
from cutlayer.codecs.entropy.section_shape import SectionShape
from cutlayer.codecs.kernels import threads
from cutlayer.codecs.kernels.native_memory import address, empty
from cutlayer.codecs.tensors import Tensor

_ELEMENTS_FOR_THREADS = 1 << 17

Array = NDArray[Any]


def _arguments(shape: SectionShape, rotation: Array) -> tuple[list[int], Array, int]:
    matrix = np.ascontiguousarray(rotation.astype(np.float32) / np.float32(ROTATION_UNIT))
    count = threads.number() if shape.d >= _ELEMENTS_FOR_THREADS else 1
    return [shape.samples, shape.channels, shape.height, shape.width], matrix, count


def ems_dct_forward(x: Tensor, shape: SectionShape, rotation: Array) -> Tensor:
    """See `codecs.reference`."""
    sizes, matrix, count = _arguments(shape, rotation)
    y = empty([coefficient_shape(shape).d], np.float32)
    _n.dct_forward(address(x), sizes, address(matrix), address(y), count)
    return y


def ems_dct_inverse(
    y: Tensor, shape: SectionShape, rotation: Array, lowest: float, highest: float, out: Tensor
) -> None:
    """See `codecs.reference`."""
    sizes, matrix, count = _arguments(shape, rotation.T)
    where = (lowest, highest, address(out), count)
    _n.dct_inverse(address(y), sizes, address(matrix), *where)
