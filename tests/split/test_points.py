"""The list of valid cuts: shapes, parameters and multiply-adds against numbers worked by hand."""

import pytest
import torch
from torch import nn

from cutlayer.errors import CutError
from cutlayer.split import CutPoint, CutTensor, cut_points


def test_convolutions_by_hand() -> None:
    model = nn.Sequential()
    model.add_module("conv", nn.Conv2d(3, 8, 3, stride=2, padding=1))  # 8x5x5 from 3x10x10
    model.add_module("grouped", nn.Conv2d(8, 8, 3, padding=1, groups=4, bias=False))
    model.add_module("up", nn.ConvTranspose2d(8, 2, 2, stride=2))  # 2x10x10
    model.add_module("flat", nn.Flatten())
    model.add_module("fc", nn.Linear(200, 7))
    conv, grouped = 8 * 25 * 27, 8 * 25 * 2 * 9
    up = 25 * 8 * 2 * 4  # each input pixel goes to 4 outputs in each of 2 channels
    fc = 200 * 7
    weights = [3 * 8 * 9 + 8, 8 * 2 * 9, 8 * 2 * 4 + 2, 200 * 7 + 7]
    total = sum(weights)
    expected = [
        CutPoint("conv", (8, 5, 5), weights[0], total - weights[0], conv, grouped + up + fc),
        CutPoint("grouped", (8, 5, 5), 368, total - 368, conv + grouped, up + fc),
        CutPoint("up", (2, 10, 10), 434, weights[3], conv + grouped + up, fc),
        CutPoint("flat", (200,), 434, weights[3], conv + grouped + up, fc),
    ]
    assert cut_points(model, torch.zeros(1, 3, 10, 10)) == expected
    assert cut_points(model, torch.zeros(3, 3, 10, 10)) == expected  # per sample
    assert expected[0].elements == 200
    assert expected[0].raw_bytes == 800


def test_attention_by_hand() -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(3, 8)
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.fc = nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.embed(x)
            x, _ = self.attention(x, x, x, need_weights=False)
            return self.fc(x.mean(1))

    first, second = cut_points(Encoder(), torch.zeros(2, 5, 3))
    # Three projections and the one behind, then scores and the weighted sum, of 5 tokens of 8.
    attention = 4 * 5 * 8 * 8 + 2 * 5 * 5 * 8
    fc = 8 * 2
    assert (first.name, first.shape, first.client_madds) == ("embed", (5, 8), 5 * 3 * 8)
    assert first.server_madds == attention + fc
    assert (second.name, second.shape) == ("attention", (5, 8))
    assert (second.client_madds, second.server_madds) == (5 * 3 * 8 + attention, fc)


def test_matrix_products_outside_of_layers_count() -> None:
    class Free(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.Tanh()
            self.weight = nn.Parameter(torch.ones(4, 6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.act(x) @ self.weight

    (point,) = cut_points(Free(), torch.zeros(2, 4))
    assert point == CutPoint("act", (4,), 0, 24, 0, 24)


def test_only_tensors_that_a_codec_can_carry_are_listed() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.round = Round()
            self.embed = nn.Embedding(5, 4)
            self.turn = Turn()
            self.back = Turn()
            self.pool = Total()
            self.fc = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.back(self.turn(self.embed(self.round(x))))
            return self.fc(x) + self.pool(x)

    class Round(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.long()

    class Turn(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.transpose(0, 1)

    class Total(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sum()

    points = cut_points(Odd(), torch.zeros(2, 3))
    assert [(p.name, p.shape) for p in points] == [("embed", (3, 4)), ("back", (3, 4)), ("fc", (3, 2))]
    assert points[-1].others == (CutTensor("back", (3, 4)),)
    assert points[-1].elements == 6 + 12


def test_running_statistics_and_mode_are_untouched() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    cut_points(model, torch.randn(1, 2))
    assert all(torch.equal(state[n], v) for n, v in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert torch.backends.mha.get_fastpath_enabled()


def test_example_that_does_not_fit() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    with pytest.raises(CutError, match=r"does not run on an example of shape \(1, 5\)"):
        cut_points(model, torch.zeros(1, 5))


def test_a_model_without_storage_can_be_measured() -> None:
    """Shapes and work of a large model at no cost: nothing is computed on the meta device."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
    points = cut_points(model, torch.zeros(1, 3, 4, 4))
    assert cut_points(model.to("meta"), torch.zeros(1, 3, 4, 4, device="meta")) == points
