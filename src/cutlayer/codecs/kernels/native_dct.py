"""The compiled transform of `ems` behind the surface of `kernels.Kernels`: addresses, no logic."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutlayer import _native as _n
from cutlayer.codecs.entropy.dct import UNIT, coefficients
from cutlayer.codecs.entropy.section_shape import Geometry
from cutlayer.codecs.kernels.native_memory import empty

_ELEMENTS_FOR_THREADS = 1 << 17

Array = NDArray[Any]


def _how(shape: Geometry, rotation: Array) -> tuple[list[int], Array, int]:
    matrix = np.ascontiguousarray(rotation.astype(np.float32) / np.float32(UNIT))
    threads = torch.get_num_threads() if shape.d >= _ELEMENTS_FOR_THREADS else 1
    return [shape.samples, shape.channels, shape.height, shape.width], matrix, threads


def ems_forward(x: Tensor, shape: Geometry, rotation: Array) -> Tensor:
    """See `kernels.Kernels`."""
    sizes, matrix, threads = _how(shape, rotation)
    y = empty([coefficients(shape).d], torch.float32)
    _n.transform_forward(x.data_ptr(), sizes, matrix.ctypes.data, y.data_ptr(), threads)
    return y


def ems_inverse(
    y: Tensor, shape: Geometry, rotation: Array, lowest: float, highest: float, out: Tensor
) -> None:
    """See `kernels.Kernels`."""
    sizes, matrix, threads = _how(shape, rotation.T)
    where = (lowest, highest, out.data_ptr(), threads)
    _n.transform_inverse(y.data_ptr(), sizes, matrix.ctypes.data, *where)
