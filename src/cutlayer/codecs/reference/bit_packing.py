"""Bit packing: codes of any width into bytes, from the least significant bit on (FORMAT.md, "bit stream")."""

import torch
from torch import Tensor

# Codes are packed in pieces, because each bit takes four bytes meanwhile. A multiple of eight, so that each
# piece starts on a byte.
_PIECE = 1 << 20


def size(n: int, width: int) -> int:
    """Bytes that n codes take."""
    return (n * width + 7) // 8


def pack(codes: Tensor, width: int) -> Tensor:
    """Codes (rows, n) into bytes (rows, size(n, width))."""
    places = torch.arange(width, device=codes.device, dtype=torch.int32)
    weights = 1 << torch.arange(8, device=codes.device, dtype=torch.int32)
    pieces = []
    for piece in torch.split(codes.to(torch.int32), _PIECE, dim=1):
        bits = ((piece.unsqueeze(-1) >> places) & 1).flatten(1)
        bits = torch.nn.functional.pad(bits, (0, -bits.shape[1] % 8))
        pieces.append((bits.view(len(bits), -1, 8) * weights).sum(-1).to(torch.uint8))
    return torch.cat(pieces, dim=1)


def unpack(stream: Tensor, n: int, width: int) -> Tensor:
    """Bytes (rows, size(n, width)) into int32 codes (rows, n)."""
    eight = torch.arange(8, device=stream.device, dtype=torch.int32)
    weights = 1 << torch.arange(width, device=stream.device, dtype=torch.int32)
    pieces = []
    for start in range(0, n, _PIECE):
        count = min(_PIECE, n - start)
        part = stream[:, start * width // 8 :][:, : size(count, width)].to(torch.int32)
        bits = ((part.unsqueeze(-1) >> eight) & 1).flatten(1)[:, : count * width]
        pieces.append((bits.reshape(len(bits), count, width) * weights).sum(-1, dtype=torch.int32))
    return torch.cat(pieces, dim=1)


def padded_with_zeros(stream: Tensor, n: int, width: int) -> bool:
    """Whether the bits after the last code are zero, as they must be."""
    used = n * width % 8
    return used == 0 or not bool((stream[:, -1] >> used).any())
