"""Samples for tests."""

import torch

from cutlayer.data import load


def images(count: int) -> torch.Tensor:
    """Digits of the test part."""
    found: torch.Tensor = load("digits", "test").images[:count]  # type: ignore[attr-defined]
    return found
