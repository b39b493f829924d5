"""The compiled kernels of stochastic rounding: passes addresses to the extension `cutlayer._native`."""

import numpy as np
import torch
from torch import Tensor

from cutlayer import _native as _n
from cutlayer.codecs.kernels.native_memory import empty

_ELEMENTS_FOR_THREADS = 1 << 16


def ems_quantize_stochastically(
    x: Tensor, scale: float, n_levels: int, seed: int, stream: int, section: int
) -> Tensor:
    """See `codecs.reference`."""
    out = empty([x.numel()], torch.uint8)
    how = (scale, n_levels, seed, stream, section)
    threads = torch.get_num_threads() if x.numel() >= _ELEMENTS_FOR_THREADS else 1
    _n.ems_quantize_stochastically(x.data_ptr(), x.numel(), *how, out.data_ptr(), threads)
    return out


def ems_stochastic_tops(
    x: Tensor, levels: Tensor, scale: float, n_levels: int, seed: int, stream: int, section: int
) -> Tensor:
    """See `codecs.reference`."""
    how = (scale, n_levels, seed, stream, section)
    found = _n.ems_stochastic_tops(x.data_ptr(), levels.data_ptr(), x.numel(), *how)
    return torch.from_numpy(np.frombuffer(found, np.int64).copy())
