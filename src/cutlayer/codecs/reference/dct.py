"""The transform of `ems`: DCT of 8 x 8 blocks and rotation of channels (PCA), forward and inverse.

Every product and every sum is rounded to float32, in the order that FORMAT.md gives, so that all machines and
devices find the same bits. Matrix products are not used, since they may add in any order.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutlayer.codecs.entropy.dct import BLOCK, COSINES
from cutlayer.codecs.entropy.pca import ROTATION_UNIT
from cutlayer.codecs.entropy.section_shape import SectionShape

Array = NDArray[Any]

HALF = BLOCK // 2


def ems_dct_forward(x: Tensor, shape: SectionShape, rotation: Array) -> Tensor:
    """The coefficients of a row, in the order of `coefficient_shape`.

    Border elements are repeated to fill blocks.
    """
    planes = x.view(-1, shape.channels, shape.height, shape.width)
    down, across = (-(-n // BLOCK) for n in (shape.height, shape.width))
    rows, columns = (
        torch.arange(n * BLOCK, device=x.device).clamp_(max=most - 1)
        for n, most in ((down, shape.height), (across, shape.width))
    )
    blocks = planes[:, :, rows][:, :, :, columns].view(-1, shape.channels, down, BLOCK, across, BLOCK)
    # Samples, channels, frequencies down and across, blocks down and across.
    t = _dct8(blocks, 5).permute(0, 1, 3, 5, 2, 4)
    return _rotated(_dct8(t, 2), rotation).reshape(-1)


def ems_dct_inverse(
    y: Tensor, shape: SectionShape, rotation: Array, lowest: float, highest: float, out: Tensor
) -> None:
    """Decode elements from coefficients, and clamp them to lowest ... highest."""
    down, across = (-(-n // BLOCK) for n in (shape.height, shape.width))
    t = y.view(-1, shape.channels, BLOCK, BLOCK, down, across)
    t = _idct8(_idct8(_rotated(t, rotation.T), 2), 3)
    planes = t.permute(0, 1, 4, 2, 5, 3).reshape(-1, shape.channels, down * BLOCK, across * BLOCK)
    found = planes[:, :, : shape.height, : shape.width].clamp(lowest, highest)
    out.view(found.shape).copy_(found).add_(0.0)  # a zero is never -0


def _rotated(t: Tensor, matrix: Array) -> Tensor:
    """Multiply the channels by the matrix; sums run from the first channel on."""
    factors = torch.from_numpy(matrix.astype(np.float32) / np.float32(ROTATION_UNIT)).to(t.device)
    factors = factors.view(*factors.shape, *[1] * (t.dim() - 2))
    total = factors[:, 0] * t[:, 0:1]
    for channel in range(1, t.shape[1]):
        total += factors[:, channel] * t[:, channel : channel + 1]
    return total


def _dct8(t: Tensor, dim: int) -> Tensor:
    """The DCT of eight elements along a dimension."""
    parts = t.unbind(dim)
    sums = [parts[i] + parts[-1 - i] for i in range(HALF)]
    differences = [parts[i] - parts[-1 - i] for i in range(HALF)]
    return torch.stack([_weighted_sum(COSINES[u], differences if u % 2 else sums) for u in range(BLOCK)], dim)


def _idct8(t: Tensor, dim: int) -> Tensor:
    """The inverse DCT of eight frequencies along a dimension."""
    parts = t.unbind(dim)
    even = [_weighted_sum(COSINES[0::2, i], parts[0::2]) for i in range(HALF)]
    odd = [_weighted_sum(COSINES[1::2, i], parts[1::2]) for i in range(HALF)]
    first = [e + o for e, o in zip(even, odd, strict=True)]
    return torch.stack(first + [e - o for e, o in zip(even, odd, strict=True)][::-1], dim)


def _weighted_sum(factors: Array, parts: Any) -> Tensor:
    total: Tensor = parts[0] * float(factors[0])
    for factor, part in zip(factors[1:], parts[1:], strict=True):
        total += part * float(factor)
    return total
