"""Models for tests of cutting."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    """One activation used twice, and a skip connection around it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.conv2(self.relu(self.bn(self.conv1(x)))) + x)


class Noisy(nn.Module):
    """Behaves by mode in its own way and decides by value: cannot be traced."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and x.sum() > -1e9:
            return x + torch.rand_like(x)
        return x


class SkipNet(nn.Module):
    """Functional operations between modules, by mode too; all kinds of state; optional input."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((1,), 1.5))
        self.register_buffer("offset", torch.ones(1))
        self.register_buffer("table", torch.arange(4.0), persistent=False)
        self.plain = torch.full((4, 1, 1), 0.5)
        self.never = nn.Linear(2, 2)
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.drop = nn.Dropout(0.5)
        self.blocks = nn.Sequential(Residual(4), Noisy(), Residual(4))
        self.tail = nn.ModuleList([nn.Conv2d(4, 6, 1), nn.Linear(6, 5)])

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        y = F.relu(self.stem(x), inplace=True) * self.scale
        y = self.drop(y) + self.table.view(4, 1, 1) + self.plain
        y = self.blocks(y)
        y = F.dropout(y, 0.3, training=self.training)
        if mask is not None:
            y = y * mask
        y = self.drop(self.tail[0](y)) + self.offset + torch.ones(6, 1, 1)
        y = F.relu_(y)
        n = y.size(0)
        return self.tail[1](y.mean((2, 3)).view(n, -1))


@pytest.fixture
def skip_net() -> Callable[[], nn.Module]:
    """Makes a model that is no sequential."""
    return SkipNet


@pytest.fixture
def noisy() -> type[nn.Module]:
    """Modules that cannot be traced."""
    return Noisy
