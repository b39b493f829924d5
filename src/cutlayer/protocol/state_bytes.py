"""A client's state as bytes, for a State message: a safetensors file, so nothing in it can be executed."""

from collections.abc import Mapping

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from cutlayer.errors import MessageError
from cutlayer.training.checkpoint import unshared


def to_bytes(state: Mapping[str, Tensor]) -> bytes:
    """The tensors by name."""
    return safetensors.torch.save(unshared(state))


def from_bytes(data: bytes) -> dict[str, Tensor]:
    """The tensors in bytes from another party."""
    try:
        return safetensors.torch.load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise MessageError(f"a damaged State message: {error}") from None
