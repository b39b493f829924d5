"""Memory for results of the compiled kernels."""

from collections.abc import Sequence

import torch
from torch import Tensor

from cutlayer import _native as _n

# Smaller tensors mostly get memory that was used before, whose pages are there.
_BYTES_FOR_LARGE_PAGES = 1 << 22


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
    """See `kernels.Kernels`."""
    out = torch.empty(shape, dtype=dtype, device=device)
    if out.nbytes >= _BYTES_FOR_LARGE_PAGES:
        _n.large_pages(out.data_ptr(), out.nbytes)
    return out
