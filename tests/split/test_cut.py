"""Cutting: the parts together are the model, bit for bit and name for name."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from cutlayer.split import Part, cut, cut_points

# Sums in one order, to compare bits; and no waiting for busy cores.


class Recurrent(nn.Module):
    """A module that returns a tuple, of which one item goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.fc = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, _ = self.lstm(x)
        y, _ = self.attention(y, y, y)
        return self.fc(y[:, -1])


def join(parts: tuple[Part, ...], x: torch.Tensor) -> torch.Tensor:
    """Run the parts with nothing but values handed over, and gradients handed back by hand."""
    sent: list[torch.Tensor] = []
    received: list[torch.Tensor] = []
    for part in parts[:-1]:
        sent.append(part(x))
        x = sent[-1].detach().clone().requires_grad_()
        received.append(x)
    output = parts[-1](x)
    output.square().sum().backward()
    for y, z in zip(reversed(sent), reversed(received), strict=True):
        y.backward(z.grad)
    return output.detach()


def check_exact(original: nn.Module, at: str | tuple[str, str], x: torch.Tensor) -> None:
    for training in (True, False):
        whole = copy.deepcopy(original).train(training)
        torch.manual_seed(7)
        expected = whole(x)
        expected.square().sum().backward()
        model = copy.deepcopy(original)
        parts = tuple(part.train(training) for part in cut(model, at=at))
        torch.manual_seed(7)
        assert torch.equal(join(parts, x), expected), (at, training)
        for name, parameter in whole.named_parameters():
            gradient = model.get_parameter(name).grad
            both_none = parameter.grad is None and gradient is None
            assert both_none or torch.equal(gradient, parameter.grad), (at, training, name)
        # The state moved on (batch norm) in the same way, under the same names, each name once.
        states = [part.state_dict() for part in parts]
        merged = {name: value for state in states for name, value in state.items()}
        assert sum(map(len, states)) == len(merged)
        assert merged.keys() == whole.state_dict().keys()
        assert all(torch.equal(merged[n], v) for n, v in whole.state_dict().items())


SKIP_CUTS = ["stem", "blocks.0", "blocks.1", "blocks", "tail.0"]


def test_valid_cuts_of_a_model_that_is_no_sequential(skip_net: Callable[[], nn.Module]) -> None:
    points = cut_points(skip_net(), torch.zeros(2, 3, 6, 6))
    assert [p.name for p in points] == SKIP_CUTS


@pytest.mark.parametrize("at", SKIP_CUTS)
def test_skip_net_in_two(skip_net: Callable[[], nn.Module], at: str) -> None:
    torch.manual_seed(0)
    check_exact(skip_net(), at, torch.randn(2, 3, 6, 6))


@pytest.mark.parametrize(
    "at", [("stem", "tail.1"), ("stem", "blocks.2"), ("blocks.0", "blocks.2"), ("blocks", "tail.1")]
)
def test_skip_net_in_three(skip_net: Callable[[], nn.Module], at: tuple[str, str]) -> None:
    torch.manual_seed(0)
    check_exact(skip_net(), at, torch.randn(2, 3, 6, 6))


@pytest.fixture
def nested(noisy: type[nn.Module]) -> nn.Sequential:
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
    features = nn.Sequential(inner, noisy(), nn.Conv2d(4, 4, 1))
    model = nn.Sequential()
    model.add_module("features", features)
    model.add_module("rest", nn.Sequential(nn.Dropout(0.5, inplace=True), nn.Flatten()))
    model.add_module("fc", nn.Linear(4 * 9, 2))
    return model


NESTED_CUTS = ["features.0.0", "features.0.1", "features.0", "features.1", "features"]


@pytest.mark.parametrize("at", [*NESTED_CUTS, "rest.0", "rest", ("features.0.1", "rest.1")])
def test_nested_sequential(nested: nn.Sequential, at: str | tuple[str, str]) -> None:
    check_exact(nested, at, torch.randn(2, 3, 3, 3))


def test_sequential_needs_no_traceable_children(nested: nn.Sequential, noisy: type[nn.Module]) -> None:
    client, server = cut(nested, at="features.0.0")
    assert list(client.state_dict()) == ["features.0.0.weight", "features.0.0.bias"]
    assert isinstance(server.get_submodule("features.1"), noisy)


@pytest.mark.parametrize("at", ["lstm", "attention", ("lstm", "fc")])
def test_one_item_of_a_tuple_crosses(at: str | tuple[str, str]) -> None:
    torch.manual_seed(0)
    check_exact(Recurrent(), at, torch.randn(2, 5, 3))


def test_index_of_a_tensor_that_also_goes_on_whole() -> None:
    class Indexed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(3, 3)
            self.b = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.a(x)
            return self.b(y) + y[0]

    check_exact(Indexed(), "a", torch.randn(2, 3))


def test_tied_inside_one_part_keeps_both_names() -> None:
    torch.manual_seed(0)
    first = nn.Linear(4, 4)
    model = nn.Sequential(nn.Linear(4, 4), first, nn.ReLU(), nn.Linear(4, 4))
    model[3].weight = first.weight
    check_exact(model, "0", torch.randn(2, 4))
    _, server = cut(model, at="0")
    assert {"1.weight", "3.weight"} <= server.state_dict().keys()
    assert server.get_parameter("1.weight") is server.get_parameter("3.weight")


def test_module_under_two_names() -> None:
    class Alias(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.alias = self.first
            self.last = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(F.relu(self.alias(x)))

    check_exact(Alias(), "alias", torch.randn(2, 4))
    client, _ = cut(Alias(), at="alias")
    assert {"first.weight", "alias.weight"} <= client.state_dict().keys()


def test_hooks_inside_the_model_stay() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), nn.Linear(3, 2))
    for module in (model[0], model[0][1], model[1]):
        module.register_forward_hook(lambda module, inputs, output: output * 2)
    check_exact(model, "0.0", torch.randn(2, 3))
    check_exact(model, "0", torch.randn(2, 3))
