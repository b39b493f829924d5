"""Tensors of a request as bytes: floats under a codec, integers and booleans packed without loss.

One tensor is a frame, several are a set of frames with their names, as at any cut.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cutlayer.codecs import Codec, decode
from cutlayer.codecs.tensor_set.frame_set import is_set, join_frames, split_frames
from cutlayer.codecs.tensor_set.integers import encode_integers
from cutlayer.split.layer import mix
from cutlayer.split.tensors import Tensors, apply, tensors_of


def pack_tensor(x: Tensor, codec: Codec, seed: int) -> bytes:
    """A tensor as a frame; the codec is for floats."""
    x = x.detach()
    return codec.encode(x, seed=seed) if x.is_floating_point() else encode_integers(x)


def unpack_tensor(data: bytes, max_elements: int, device: torch.device | None = None) -> Tensor:
    """The tensor in a frame from another party, which may have so many elements. Raises FrameError."""
    found: Tensor = decode(data, max_elements=max_elements, device=device, like="torch")
    return found


def pack_tensors(x: Tensors, codec: Codec, seed: int) -> bytes:
    """What crosses a cut: a frame, or a set of frames. Each tensor of a set has a seed of its own."""
    if isinstance(x, Tensor):
        return pack_tensor(x, codec, seed)
    return join_frames(
        {name: pack_tensor(tensor, codec, mix(seed, i)) for i, (name, tensor) in enumerate(x.items())}
    )


def unpack_tensors(data: bytes, max_elements: int, device: torch.device | None = None) -> Tensors:
    """What crosses a cut, from another party: together so many elements at most. Raises FrameError."""
    if not is_set(data):
        return unpack_tensor(data, max_elements, device)
    found: dict[str, Tensor] = {}
    for name, frame in split_frames(data).items():
        found[name] = unpack_tensor(bytes(frame), max_elements, device)
        max_elements -= found[name].numel()
    return found


def shapes_of(x: Tensors) -> list[int] | dict[str, list[int]]:
    """The shape of a tensor, or those of several by name."""
    return {name: list(t.shape) for name, t in x.items()} if isinstance(x, dict) else list(x.shape)


def typed_as(gradient: Tensors, x: Tensors) -> Tensors:
    """Gradients in the dtypes of the tensors that they belong to."""
    if isinstance(gradient, dict) and isinstance(x, dict):
        return {name: tensor.to(x[name].dtype) for name, tensor in gradient.items()}
    return apply(lambda tensor: tensor.to(tensors_of(x)[0].dtype), gradient)
