"""A small problem, as objects."""

from typing import Any

import pytest
import torch
from torch import nn


@pytest.fixture
def problem() -> dict[str, Any]:
    """Two classes of points, for `cutlayer.train`."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(120, 6, generator=g)
    y = (x.sum(1) > 0).long()
    return {
        "at": "1",
        "train": (x[:96], y[:96]),
        "test": (x[96:], y[96:]),
        "clients": 2,
        "batch_size": 8,
        "codec": "qu:bits=6",
        "epochs": 2,
        "lr": 0.1,
    }


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.Dropout(0.1), nn.Linear(8, 2))
