"""`km`: histogram, encoding and decoding. Lloyd's algorithm itself is in `codecs.km`."""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Buffer

from cutlayer.codecs.reference import bit_packing as stream
from cutlayer.codecs.reference.frame_buffer import as_numbers, put, sections

GRID = 1 << 16


def _on_grid(row: Tensor, lo: float, hi: float) -> Tensor:
    """The level of each element on a grid of 2^16 levels from lo to hi."""
    scale = (GRID - 1) / (hi - lo) if hi > lo else 0.0
    return ((row.double() - lo) * scale).round().long()


def km_histogram(row: Tensor, lo: float, hi: float) -> NDArray[Any]:
    """Count the elements of a row on each level of the grid between lo and hi."""
    return _on_grid(row, lo, hi).bincount(minlength=GRID).cpu().numpy()


def km_encode(
    row: Tensor, lo: float, hi: float, cluster: bytes, bits: int, frame: bytearray, offset: int
) -> None:
    """Write the cluster of each element as a bit stream. `cluster` maps grid levels to clusters."""
    table = torch.tensor(list(cluster), dtype=torch.int32, device=row.device)
    put(frame, offset, stream.pack(table[_on_grid(row, lo, hi)].unsqueeze(0), bits))


def km_decode(frame: Buffer, offset: int, bits: int, out: Tensor) -> int:
    """Decode sections of centroids and cluster indices."""
    rows, d = out.shape
    head = 4 * 2**bits
    payload = sections(frame, offset, rows, head + stream.size(d, bits), out.device)
    table = as_numbers(payload[:, :head], torch.float32)
    if not torch.isfinite(table).all() or (table.diff(dim=1) < 0).any():
        return 5
    if not stream.padded_with_zeros(payload[:, head:], d, bits):
        return 3
    out.copy_(table.gather(1, stream.unpack(payload[:, head:], d, bits).long()))
    return 0
