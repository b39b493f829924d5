"""Buffers of frames: allocation, checksum, and the sections and values of a payload as tensors."""

import zlib
from typing import Any, cast

import torch
from torch import Tensor
from typing_extensions import Buffer

from cutlayer.codecs.kernels import float_types
from cutlayer.codecs.tensors import bytes_of, in_torch, tensor_from

#: The types of values, as PyTorch names them.
VALUE_DTYPES: tuple[torch.dtype, ...] = tuple(kind.in_torch for kind in float_types.VALUE_DTYPES)


def allocate(header: bytes, payload: int) -> bytearray:
    """A buffer with the header, and zeros for the payload."""
    return bytearray(header) + bytearray(payload)


def own(x: Any) -> Tensor:
    """A tensor or array as one that these kernels work on, in the same memory where that is possible."""
    found: Tensor = in_torch(x)
    return found


def advise(x: Any) -> None:
    """Told that a large result will be filled."""


def empty_like(x: Tensor, elements: int) -> Tensor:
    """An uninitialised row of so many elements, of the type and in the place of another tensor."""
    return torch.empty(elements, dtype=x.dtype, device=x.device)


def put_bytes(frame: bytearray, offset: int, data: Buffer) -> None:
    """Copy bytes into a frame at an offset."""
    raw = memoryview(data)
    frame[offset : offset + raw.nbytes] = raw


def get_floats(frame: Buffer, offset: int, out: Tensor) -> None:
    """Fill a tensor with the float32 values that stand in a frame at an offset."""
    out.copy_(tensor_from(frame, offset, out.numel(), torch.float32).view(out.shape))


def seal(frame: bytearray, start: int) -> bytes:
    """Write the CRC-32 of all bytes from `start` on into the four bytes before `start`."""
    frame[start - 4 : start] = zlib.crc32(memoryview(frame)[start:]).to_bytes(4, "little")
    return bytes(frame)


def checksum(frame: Buffer, start: int) -> int:
    """The CRC-32 of all bytes from `start` on."""
    return zlib.crc32(memoryview(frame)[start:])


def put(frame: bytearray, offset: int, sections: Tensor) -> None:
    """Write the sections of a payload (uint8, one section a row)."""
    put_bytes(frame, offset, bytes_of(sections.cpu().contiguous()))


def sections(frame: Buffer, offset: int, rows: int, size: int, device: torch.device) -> Tensor:
    """Read the sections of a payload as uint8, one section a row."""
    found: Tensor = tensor_from(frame, offset, rows * size).to(device).view(rows, size)
    return found


def as_bytes(x: Tensor) -> Tensor:
    """Rows of numbers as rows of bytes."""
    return x.contiguous().view(x.shape[0], -1).view(torch.uint8)


def as_numbers(raw: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows of bytes as rows of numbers. The clone aligns them in memory."""
    return raw.clone(memory_format=torch.contiguous_format).view(dtype)


def check_values(frame: Buffer, offset: int, n: int, values: int) -> int:
    """Fault 2 if any of n values is NaN or infinite, else 0."""
    found = tensor_from(frame, offset, n, VALUE_DTYPES[values])
    return 0 if cast(bool, torch.isfinite(found).all().item()) else 2
