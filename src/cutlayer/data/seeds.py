"""Random generators of PyTorch, each for one purpose at one place in the run: see `cutlayer.seeds`."""

from __future__ import annotations

import torch

from cutlayer.seeds import derive

__all__ = ["derive", "generator"]


def generator(purpose: str, *place: int) -> torch.Generator:
    """Return a fresh CPU generator for one purpose at one place in the run."""
    return torch.Generator().manual_seed(derive(purpose, *place))
