"""`sp`, `rt` and `rk`: which elements are kept, and their positions and values as bytes."""

import torch
from torch import Tensor
from typing_extensions import Buffer

from cutlayer.codecs.reference import bit_packing as stream
from cutlayer.codecs.reference.frame_buffer import VALUE_DTYPES, as_bytes, as_numbers, put, sections
from cutlayer.codecs.reference.philox import draw, words
from cutlayer.codecs.reference.topk import select_top

TOP, RANDOMIZED, RANDOM = 0, 1, 2  # top-k, randomized top-k, random-k

# Numbers of the random streams that a section draws from (FORMAT.md, "Randomness").
_HITS, _TOP, _OTHERS = 1, 2, 3


def sparse_encode(
    x: Tensor,
    k: int,
    pick: int,
    alpha: float,
    coin: bool,
    seed: int,
    keys: bool,
    values: int,
    scale: float,
    frame: bytearray,
    offset: int,
) -> float:
    """Write positions (bit mask or keys) and values of the k kept elements of each row.

    Returns the largest magnitude; if that is not finite, nothing was written.
    """
    rows, d = x.shape
    top = select_top(x, k)
    if not top.mask.numel():
        return top.largest
    if pick == TOP:
        keep = top.mask
    elif pick == RANDOM:
        keep = torch.stack([draw(seed, _OTHERS, r, k, d) for r in range(rows)]).to(x.device)
    else:
        keep = torch.zeros_like(top.mask)
        for r, mask in enumerate(top.mask):
            hits = _top_draws(d, k, alpha, coin, seed, r)
            keep[r, mask] = draw(seed, _TOP, r, hits, k).to(x.device)
            keep[r, ~mask] = draw(seed, _OTHERS, r, k - hits, d - k).to(x.device)
    kept = (x[keep].view(rows, k) * scale).to(VALUE_DTYPES[values])
    keys_of = keep.nonzero()[:, 1].view(rows, k)  # the low half of an int64 below 2^32 is the u32
    where = as_bytes(keys_of.to(torch.int32)) if keys else stream.pack(keep, 1)
    put(frame, offset, torch.cat([where, as_bytes(kept)], dim=1))
    return top.largest


def sparse_decode(frame: Buffer, offset: int, k: int, keys: bool, values: int, out: Tensor) -> int:
    """Decode positions and values; all other elements become 0."""
    rows, d = out.shape
    where_bytes = 4 * k if keys else stream.size(d, 1)
    size = where_bytes + k * VALUE_DTYPES[values].itemsize
    payload = sections(frame, offset, rows, size, out.device)
    where = payload[:, :where_bytes]
    kept = as_numbers(payload[:, where_bytes:], VALUE_DTYPES[values])
    if not torch.isfinite(kept).all():
        return 2
    if keys:
        index = as_numbers(where, torch.int32).long() & 0xFFFFFFFF
        if (index >= d).any() or (index.diff(dim=1) <= 0).any():
            return 4
        out.zero_().scatter_(1, index, kept.float())
        return 0
    if not stream.padded_with_zeros(where, d, 1):
        return 3
    keep = stream.unpack(where, d, 1).bool()
    if (keep.sum(dim=1) != k).any():
        return 1
    out.zero_().masked_scatter_(keep, kept.float())
    return 0


def _top_draws(d: int, k: int, alpha: float, coin: bool, seed: int, section: int) -> int:
    """How many of k draws without replacement fall on the top k of d."""
    top, others = k, d - k
    a, b = (1 - alpha) / top, alpha / others if others else 0.0
    for word in words(seed, _HITS, section, 0, k, torch.device("cpu")).tolist():
        u, left = word * 2.0**-32, top * a
        hit = u >= alpha if coin else u * (left + others * b) < left
        if top and (hit or not others):
            top -= 1
        else:
            others -= 1
    return k - top
