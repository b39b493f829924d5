"""`ms`, mask-encoded sparsification: Algorithms 1 and 2 of the paper, in the layout of FORMAT.md."""

import torch
from torch import Tensor
from typing_extensions import Buffer

from cutlayer.codecs.reference import bit_packing as stream
from cutlayer.codecs.reference.frame_buffer import VALUE_DTYPES, as_bytes, as_numbers, put, sections
from cutlayer.codecs.reference.topk import Top


def ms_encode(
    x: Tensor,
    top: Top,
    bits: int,
    nearest: bool,
    signed: bool,
    values: int,
    frame: bytearray,
    offset: int,
) -> None:
    """Write mask and top values of each row.

    `top` comes from `select_top`; `values` is the type of top values.
    """
    full = 2**bits - 1
    kept = x[top.mask].view(x.shape[0], -1).to(VALUE_DTYPES[values])
    topmin = kept.abs().amin(dim=1, keepdim=True).double()
    # In float64 the quotient is so precise that rounding it gives the same integer as rounding the real
    # number.
    quotient = x.abs().double() * full / topmin.where(topmin > 0, torch.inf)
    level = quotient.round() if nearest else quotient.floor()
    code = level.clamp_(max=full - 1).to(torch.int32).masked_fill_(top.mask, full)
    if signed:
        code |= (x < 0).to(torch.int32) << bits
    packed = stream.pack(code, bits + signed)
    put(frame, offset, torch.cat([packed, as_bytes(kept)], dim=1))


def ms_decode(frame: Buffer, offset: int, k: int, bits: int, signed: bool, values: int, out: Tensor) -> int:
    """Decode mask and top values of each row."""
    rows, d = out.shape
    width, full = bits + signed, 2**bits - 1
    mask_bytes = stream.size(d, width)
    size = mask_bytes + k * VALUE_DTYPES[values].itemsize
    payload = sections(frame, offset, rows, size, out.device)
    kept = as_numbers(payload[:, mask_bytes:], VALUE_DTYPES[values])
    if not torch.isfinite(kept).all():
        return 2
    if not stream.padded_with_zeros(payload[:, :mask_bytes], d, width):
        return 3
    code = stream.unpack(payload[:, :mask_bytes], d, width)
    mask = code & full
    is_top = mask == full
    if (is_top.sum(dim=1) != k).any():
        return 1
    topmin = kept.abs().amin(dim=1, keepdim=True).double()
    level = (mask.double() * topmin / torch.full_like(topmin, full)).float()
    level = torch.where((code > full) & (mask > 0), -level, level)
    out.copy_(level.masked_scatter_(is_top, kept.float()))
    return 0
