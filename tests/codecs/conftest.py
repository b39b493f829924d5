"""Smooth feature maps, for tests of the DCT."""

from collections.abc import Callable

import pytest
import torch


def _smooth(*shape: int, seed: int = 0) -> torch.Tensor:
    """Three smooth planes, mixed linearly into many channels, and a little noise."""
    generator = torch.Generator().manual_seed(seed)
    n, c, h, w = shape
    base = torch.randn(n, 3, h // 6 + 2, w // 6 + 2, generator=generator)
    base = torch.nn.functional.interpolate(base, (h, w), mode="bilinear")
    mixed = torch.einsum("cd,ndhw->nchw", torch.randn(c, 3, generator=generator), base)
    return mixed + 0.02 * torch.randn(n, c, h, w, generator=generator)


@pytest.fixture(scope="session")
def smooth() -> Callable[..., torch.Tensor]:
    """A function that makes smooth maps of a shape and a seed."""
    return _smooth


@pytest.fixture(scope="session")
def maps() -> dict[str, torch.Tensor]:
    """Maps on which the DCT saves bytes."""
    signed = _smooth(32, 6, 32, 40)
    odd = _smooth(30, 5, 35, 29).relu()
    return {"plain": signed.relu(), "signed": signed, "odd": odd, "3-d": signed[:, 0]}


@pytest.fixture(scope="session")
def plain(maps: dict[str, torch.Tensor]) -> torch.Tensor:
    """Maps after a ReLU."""
    return maps["plain"]
