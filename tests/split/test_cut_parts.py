"""The parts of a cut model: what is whose, and what they leave alone."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from cutlayer.errors import CutError
from cutlayer.split import cut, cut_points


def test_u_shape_begins_the_tail_with_the_second_module(skip_net: Callable[[], nn.Module]) -> None:
    head, body, tail = cut(skip_net(), at=("stem", "tail.1"))
    assert set(head.state_dict()) == {"stem.weight", "stem.bias"}
    assert {"scale", "blocks.0.conv1.weight", "tail.0.weight"} <= body.state_dict().keys()
    # What forward never reads goes with the last part.
    assert {"tail.1.weight", "tail.1.bias", "never.weight", "never.bias"} == set(tail.state_dict())


def test_buffers_are_read_when_the_part_runs() -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(3, 3)
            self.register_buffer("steps", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.a(x)
            self.steps.add_(1)
            return x + 2 * self.steps

    model = Shifted()
    client, server = cut(model, at="a")
    assert model.steps.item() == 0
    sent = client(torch.zeros(1, 3)).detach()
    assert torch.equal(server(sent), sent + 2)
    assert torch.equal(server(sent), sent + 4)
    assert model.steps.item() == 2


def test_parts_load_into_the_whole(skip_net: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    client, server = cut(skip_net(), at="blocks.0")
    other = skip_net()
    other.load_state_dict({**client.state_dict(), **server.state_dict()})
    again = cut(other, at="blocks.0")
    again[0].load_state_dict(client.state_dict())
    x = torch.randn(2, 3, 6, 6)
    with torch.no_grad():
        expected = server.eval()(client.eval()(x))
        assert torch.equal(other.eval()(x), expected)


def test_parts_share_with_the_model_and_copies_do_not(skip_net: Callable[[], nn.Module]) -> None:
    model = skip_net()
    client, server = cut(model, at="stem")
    parts = {**dict(client.named_parameters()), **dict(server.named_parameters())}
    assert all(parts[name] is parameter for name, parameter in model.named_parameters())
    order = [n for n, _ in model.named_parameters() if not n.startswith("stem")]
    assert [n for n, _ in server.named_parameters()] == order
    twin = copy.deepcopy(server)
    assert twin.state_dict().keys() == server.state_dict().keys()
    with torch.no_grad():
        model.scale.add_(1)
    assert server.get_parameter("scale").item() == 2.5
    assert twin.get_parameter("scale").item() == 1.5
    y = torch.randn(2, 4, 6, 6)
    assert twin.eval()(y).shape == server.eval()(y).shape


def test_model_is_left_as_it_was(skip_net: Callable[[], nn.Module]) -> None:
    model = skip_net()
    model.blocks.eval()
    before = [(m, dict(m.__dict__)) for m in model.modules()]
    cut(model, at="blocks.0")
    cut_points(model, torch.randn(2, 3, 6, 6))
    with pytest.raises(CutError):
        cut(model, at="nothing")
    for module, attributes in before:
        assert module.__dict__ == attributes
    client, server = cut(model, at="stem")
    assert client.training
    assert server.training
    assert not server.get_submodule("blocks").training


def test_modes_of_the_parts_are_independent(skip_net: Callable[[], nn.Module]) -> None:
    """One dropout module serves both sides; the server's mode must not reach the client's."""
    client, server = cut(skip_net(), at="blocks")
    server.eval()
    assert client.get_submodule("drop").training
    assert not server.get_submodule("drop").training


def test_a_part_does_not_write_into_what_it_is_given() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 2))
    _, server = cut(model, at="0")
    received = torch.tensor([[-1.0, 1.0, -2.0]], requires_grad=True)
    server(received).sum().backward()
    assert received.tolist() == [[-1.0, 1.0, -2.0]]
    assert received.grad is not None
    with torch.no_grad():
        values = torch.tensor([[-1.0, 1.0, -2.0]])
        server(values)
    assert values.tolist() == [[-1.0, 1.0, -2.0]]


def test_several_inputs_enter_with_the_client() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(3, 4)
            self.b = nn.Linear(2, 4)
            self.join = nn.Tanh()
            self.fc = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor, y: torch.Tensor, *, scale: float = 2.0) -> torch.Tensor:
            return self.fc(self.join(self.a(x) + scale * self.b(y)))

    model, x, y = Pair(), torch.randn(2, 3), torch.randn(2, 2)
    client, server = cut(model, at="join")
    assert torch.equal(server(client(x, y)), model(x, y))
    assert [p.name for p in cut_points(model, (x, y))] == ["b", "join"]
    client, server = cut(model, at="b")
    assert server.inputs == ("a", "b")
    assert torch.equal(server(client(x, y)), model(x, y))


def test_a_part_can_be_cut_again(skip_net: Callable[[], nn.Module]) -> None:
    model = skip_net().eval()
    client, server = cut(model, at="blocks")
    head, neck = cut(client, at="stem")
    body, tail = cut(server, at="tail.0")
    x = torch.randn(2, 3, 6, 6)
    with torch.no_grad():
        assert torch.equal(tail(body(neck(head(x)))), model(x))
