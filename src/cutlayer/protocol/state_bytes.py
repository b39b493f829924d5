"""A client's state as bytes, for a State message: a safetensors file, so nothing in it can be executed."""

from collections.abc import Mapping

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from cutlayer.errors import MessageError

#: How the names of tensors in a client's state begin that are its own even where clients share a model.
OWN = "own."


def to_bytes(state: Mapping[str, Tensor]) -> bytes:
    """The tensors by name."""
    return safetensors.torch.save(unshared(state))


def from_bytes(data: bytes) -> dict[str, Tensor]:
    """The tensors in bytes from another party."""
    try:
        return safetensors.torch.load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise MessageError(f"a damaged State message: {error}") from None


def unshared(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous tensors on the CPU, no two in the same memory, as safetensors wants them."""
    seen: set[int] = set()
    result = {}
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        place = plain.untyped_storage().data_ptr()
        if place in seen or plain.untyped_storage().nbytes() != plain.nbytes:
            plain = plain.clone()
        seen.add(place)
        result[name] = plain
    return result
