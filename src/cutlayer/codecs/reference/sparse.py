"""Sparse payloads (`sp`, `rt`, `rk`): which elements are kept, and how that is stored."""

import torch
from torch import Tensor
from typing_extensions import Buffer

from cutlayer.codecs.reference import bits as stream
from cutlayer.codecs.reference.container import as_bytes, as_numbers, put, sections
from cutlayer.codecs.reference.philox import words
from cutlayer.codecs.reference.select import select_top
from cutlayer.codecs.tensors import VALUE_DTYPES

TOP, RANDOMIZED, ANY = 0, 1, 2


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
    """See `kernels.Kernels`."""
    rows, d = x.shape
    top = select_top(x, k)
    if not top.mask.numel():
        return top.largest
    if pick == TOP:
        keep = top.mask
    else:
        order = words(seed, 0, 0, rows * d, x.device).view(rows, d)
        if pick == ANY:
            keep = _smallest(order, torch.ones_like(top.mask), torch.full((rows, 1), k))
        else:
            hits = torch.tensor([[_top_draws(d, k, alpha, coin, seed, r * d)] for r in range(rows)])
            keep = _smallest(order, top.mask, hits) | _smallest(order, ~top.mask, k - hits)
    kept = (x[keep].view(rows, k) * scale).to(VALUE_DTYPES[values])
    keys_of = keep.nonzero()[:, 1].view(rows, k)  # below 2^32, so the low half of an int64 is the u32
    where = as_bytes(keys_of.to(torch.int32)) if keys else stream.pack(keep, 1)
    put(frame, offset, torch.cat([where, as_bytes(kept)], dim=1))
    return top.largest


def sparse_decode(frame: Buffer, offset: int, k: int, keys: bool, values: int, out: Tensor) -> int:
    """See `kernels.Kernels`."""
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


def _smallest(order: Tensor, members: Tensor, count: Tensor) -> Tensor:
    """The `count` members of each row that come first in order; among equals, the first in place."""
    last = 1 << 32
    rank = order.masked_fill(~members, last).argsort(dim=1, stable=True).argsort(dim=1)
    return members & (rank < count.to(order.device))


def _top_draws(d: int, k: int, alpha: float, coin: bool, seed: int, first: int) -> int:
    """How many of k draws without replacement fall on the top k of d."""
    top, others = k, d - k
    a, b = (1 - alpha) / top, alpha / others if others else 0.0
    for word in words(seed, 1, first, k, torch.device("cpu")).tolist():
        u, left = word * 2.0**-32, top * a
        hit = u >= alpha if coin else u * (left + others * b) < left
        if top and (hit or not others):
            top -= 1
        else:
            others -= 1
    return k - top
