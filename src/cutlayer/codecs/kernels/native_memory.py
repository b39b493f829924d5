"""Memory for results of the compiled kernels, in huge pages if the result is large."""

from collections.abc import Sequence

import torch
from torch import Tensor

from cutlayer import _native as _n

# Smaller tensors mostly get memory that the allocator has used before, whose pages are mapped already.
_BYTES_FOR_HUGE_PAGES = 1 << 22


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
    """See `codecs.reference`."""
    out = torch.empty(shape, dtype=dtype, device=device)
    if out.nbytes >= _BYTES_FOR_HUGE_PAGES:
        _n.advise_huge_pages(out.data_ptr(), out.nbytes)
    return out
