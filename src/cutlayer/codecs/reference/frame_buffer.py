"""Bytes in and out: the frame under construction, its checksum, and the values in a payload."""

import zlib
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from typing_extensions import Buffer

from cutlayer.codecs.tensors import VALUE_DTYPES, bytes_of, tensor_from


def allocate(header: bytes, payload: int) -> bytearray:
    """A frame with its header, and room for the payload."""
    return bytearray(header) + bytearray(payload)


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
    """A tensor with whatever is in its memory."""
    return torch.empty(shape, dtype=dtype, device=device)


def put_bytes(frame: bytearray, offset: int, data: Buffer) -> None:
    """Copy bytes into a frame that was allocated for them."""
    raw = memoryview(data)
    frame[offset : offset + raw.nbytes] = raw


def seal(frame: bytearray, start: int) -> bytes:
    """Put in the checksum of all from `start` on, just before it."""
    frame[start - 4 : start] = zlib.crc32(memoryview(frame)[start:]).to_bytes(4, "little")
    return bytes(frame)


def checksum(frame: Buffer, start: int) -> int:
    """CRC-32 of all bytes from `start` on."""
    return zlib.crc32(memoryview(frame)[start:])


def put(frame: bytearray, offset: int, sections: Tensor) -> None:
    """Write the sections (uint8, one a row) of a payload."""
    put_bytes(frame, offset, bytes_of(sections.cpu().contiguous()))


def sections(frame: Buffer, offset: int, rows: int, size: int, device: torch.device) -> Tensor:
    """The sections of a payload as uint8, one a row."""
    return tensor_from(frame, offset, rows * size).to(device).view(rows, size)


def as_bytes(x: Tensor) -> Tensor:
    """Numbers, one row each, as their bytes."""
    return x.contiguous().view(x.shape[0], -1).view(torch.uint8)


def as_numbers(raw: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes, one row each, as numbers. The clone aligns them."""
    return raw.clone(memory_format=torch.contiguous_format).view(dtype)


def check_values(frame: Buffer, offset: int, n: int, values: int) -> int:
    """Fault 2 if any of n values is not finite."""
    found = tensor_from(frame, offset, n, VALUE_DTYPES[values])
    return 0 if cast(bool, torch.isfinite(found).all().item()) else 2
