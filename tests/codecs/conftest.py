"""Feature maps for tests of codecs that look at the plane."""

from collections.abc import Callable

import pytest
import torch


def _smooth(*shape: int, seed: int = 0) -> torch.Tensor:
    """Few sources, mixed into many channels, that change slowly over the plane."""
    generator = torch.Generator().manual_seed(seed)
    n, c, h, w = shape
    base = torch.randn(n, 3, h // 6 + 2, w // 6 + 2, generator=generator)
    base = torch.nn.functional.interpolate(base, (h, w), mode="bilinear")
    mixed = torch.einsum("cd,ndhw->nchw", torch.randn(c, 3, generator=generator), base)
    return mixed + 0.02 * torch.randn(n, c, h, w, generator=generator)


@pytest.fixture(scope="session")
def smooth() -> Callable[..., torch.Tensor]:
    """Makes maps of a shape and a seed."""
    return _smooth


@pytest.fixture(scope="session")
def maps() -> dict[str, torch.Tensor]:
    """Maps that a transform makes smaller."""
    signed = _smooth(32, 6, 32, 40)
    odd = _smooth(30, 5, 35, 29).relu()
    return {"plain": signed.relu(), "signed": signed, "odd": odd, "3-d": signed[:, 0]}


@pytest.fixture(scope="session")
def plain(maps: dict[str, torch.Tensor]) -> torch.Tensor:
    """One of them, as it comes from a ReLU."""
    return maps["plain"]
