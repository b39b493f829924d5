"""Tensors of a request as frames: floats under a codec, integers and booleans packed without loss."""

from __future__ import annotations

import torch
from torch import Tensor

from cutlayer.codecs import Codec, decode
from cutlayer.codecs.tensor_set.integers import encode_integers


def pack_tensor(x: Tensor, codec: Codec, seed: int) -> bytes:
    """A tensor as a frame; the codec is for floats."""
    x = x.detach()
    return codec.encode(x, seed=seed) if x.is_floating_point() else encode_integers(x)


def unpack_tensor(data: bytes, max_elements: int, device: torch.device | None = None) -> Tensor:
    """The tensor in a frame from another party, which may have so many elements. Raises FrameError."""
    found: Tensor = decode(data, max_elements=max_elements, device=device, like="torch")
    return found
