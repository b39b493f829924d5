"""Tensors of a request as bytes: floats as a codec's frame, integers and booleans packed without loss.

Packed integers are a header (magic, dtype, dimensions, bits, smallest value) and the differences to the
smallest value, each in as few bits as the largest one needs, the lowest bit first.
"""

from __future__ import annotations

import math
import struct

import numpy as np
import torch
from torch import Tensor

from cutlayer.codecs import Codec, decode
from cutlayer.errors import InputError, MessageError

_MAGIC = b"CUTI"
_HEAD = struct.Struct("<4sBBBq")
_DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_MOST_BITS = 62


def pack_tensor(x: Tensor, codec: Codec, seed: int) -> bytes:
    """A tensor as bytes; the codec is for floats."""
    x = x.detach()
    return codec.encode(x, seed=seed) if x.is_floating_point() else _pack_integers(x)


def unpack_tensor(data: bytes, max_elements: int, device: torch.device | None = None) -> Tensor:
    """The tensor in bytes from another party, which may have so many elements.

    Raises FrameError or MessageError if there is none in them.
    """
    if data[:4] == _MAGIC:
        return _unpack_integers(data, max_elements).to(device or "cpu")
    found: Tensor = decode(data, max_elements=max_elements, device=device, like="torch")
    return found


def _pack_integers(x: Tensor) -> bytes:
    if x.dtype not in _DTYPES or not x.numel():
        raise InputError(f"a tensor of {x.dtype} and shape {list(x.shape)} cannot be sent")
    values = x.to("cpu", torch.int64).reshape(-1).numpy()
    low, high = int(values.min()), int(values.max())
    bits = (high - low).bit_length()
    if bits > _MOST_BITS:
        raise InputError(
            f"integers from {low} to {high} need {bits} bits each; at most {_MOST_BITS} are sent"
        )
    spread = ((values - low)[:, None] >> np.arange(bits)) & 1
    packed = np.packbits(spread.astype(np.uint8).reshape(-1), bitorder="little").tobytes()
    head = _HEAD.pack(_MAGIC, _DTYPES.index(x.dtype), x.dim(), bits, low)
    return head + struct.pack(f"<{x.dim()}I", *x.shape) + packed


def _unpack_integers(data: bytes, max_elements: int) -> Tensor:
    try:
        _, kind, dims, bits, low = _HEAD.unpack_from(data)
        shape = struct.unpack_from(f"<{dims}I", data, _HEAD.size)
        dtype = _DTYPES[kind]
    except (struct.error, IndexError) as error:
        raise MessageError(f"damaged integers: {error}") from None
    count = math.prod(shape)
    if not 0 < count <= max_elements or bits > _MOST_BITS:  # before anything of that size is made
        raise MessageError(
            f"integers of shape {list(shape)} with {bits} bits; at most {max_elements} elements"
        )
    body = data[_HEAD.size + 4 * dims :]
    if len(body) != (count * bits + 7) // 8:
        raise MessageError(
            f"{count} integers of {bits} bits take {(count * bits + 7) // 8} bytes, not {len(body)}"
        )
    spread = np.unpackbits(np.frombuffer(body, np.uint8), count=count * bits, bitorder="little")
    values = spread.reshape(count, bits).astype(np.int64) @ (1 << np.arange(bits, dtype=np.int64))
    ends = (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    if low < ends[0] or low + int(values.max()) > ends[1]:
        raise MessageError(f"integers from {low} to {low + int(values.max())} are no {dtype}")
    return torch.from_numpy(values + low).to(dtype).view(shape)
