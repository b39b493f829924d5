"""`qu`: uniform quantization between the smallest and the largest element of each row."""

from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import Buffer

from cutlayer.codecs.reference import bit_packing as stream
from cutlayer.codecs.reference.frame_buffer import as_bytes, as_numbers, put, sections
from cutlayer.codecs.reference.philox import words


@dataclass(frozen=True)
class RowRange:
    """The smallest and the largest element of a row, and its largest magnitude."""

    lo: float
    hi: float
    largest: float


def ranges(x: Tensor) -> list[RowRange]:
    """The range of each row."""
    # Adding zero turns -0 into 0.
    lo, hi = (x.amin(dim=1) + 0.0).tolist(), (x.amax(dim=1) + 0.0).tolist()
    largest = x.abs().amax(dim=1).tolist()
    return [RowRange(*row) for row in zip(lo, hi, largest, strict=True)]


def qu_encode(
    x: Tensor,
    ranges: list[RowRange],
    bits: int,
    stochastic: bool,
    seed: int,
    own_range: bool,
    frame: bytearray,
    offset: int,
) -> None:
    """Write the level of each element as a bit stream; with `own_range`, each row's range in front of it."""
    bounds = torch.tensor([[r.lo, r.hi] for r in ranges], dtype=torch.float32, device=x.device)
    lo, hi = bounds[:, :1].double(), bounds[:, 1:].double()
    most = 2**bits - 1
    # A tensor divided by a Python number may be multiplied by its reciprocal instead; by a tensor it is
    # divided.
    scale = torch.where(hi > lo, torch.full_like(hi, most) / (hi - lo), 0.0)
    q = (x.double() - lo) * scale
    if stochastic:
        q = (q + words(seed, 0, 0, 0, x.numel(), x.device).view_as(x) * 2.0**-32).floor()
    else:
        q = q.round()
    packed = stream.pack(q.clamp_(max=most), bits)
    put(frame, offset, torch.cat([as_bytes(bounds), packed], dim=1) if own_range else packed)


def qu_decode(frame: Buffer, offset: int, bits: int, own: tuple[float, float] | None, out: Tensor) -> int:
    """Decode levels. `own` is the range of all rows, or None if each row starts with its range."""
    rows, d = out.shape
    head = 0 if own else 8
    payload = sections(frame, offset, rows, head + stream.size(d, bits), out.device)
    stored = payload[:, :8]
    bounds = torch.tensor([own], device=out.device) if own else as_numbers(stored, torch.float32)
    lo, hi = bounds[:, :1].double(), bounds[:, 1:].double()
    if not torch.isfinite(bounds).all() or (lo > hi).any():
        return 5
    if not stream.padded_with_zeros(payload[:, head:], d, bits):
        return 3
    q = stream.unpack(payload[:, head:], d, bits)
    out.copy_((lo + q.double() * ((hi - lo) / torch.full_like(hi, 2**bits - 1))).float())
    return 0
