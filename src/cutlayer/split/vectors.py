"""Flatten many tensors into one vector, in a fixed order, so that one frame carries them; and back."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """All elements in one float32 vector. Integers, such as batch counters, are converted, too."""
    if not tensors:
        return torch.empty(0)
    return torch.cat([t.detach().reshape(-1).to(torch.float32) for t in tensors])


def unflatten(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Pieces of a vector in the shapes and types of the given tensors; views where the type allows."""
    pieces = torch.split(vector, [t.numel() for t in like])
    return [
        (piece if t.is_floating_point() else piece.round()).view(t.shape).to(t.dtype)
        for piece, t in zip(pieces, like, strict=True)
    ]


def assign(targets: Sequence[Tensor], vector: Tensor) -> None:
    """Copy the pieces of a vector into the tensors."""
    with torch.no_grad():
        for target, piece in zip(targets, unflatten(vector, targets), strict=True):
            target.copy_(piece)


def device_of(*parts: nn.Module) -> torch.device:
    """Where a model's weights are; the CPU if it has none."""
    tensors = (t for part in parts for t in (*part.parameters(), *part.buffers()))
    return next((t.device for t in tensors), torch.device("cpu"))
