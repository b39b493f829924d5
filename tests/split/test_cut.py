"""Cutting: the parts together are the model, bit for bit and name for name."""

import copy
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from cutlayer.errors import CutError
from cutlayer.split import Part, cut, cut_points


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


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Sums in one order, to compare bits; and no waiting for busy cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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


def test_valid_cuts_of_a_model_that_is_no_sequential() -> None:
    points = cut_points(SkipNet(), torch.zeros(2, 3, 6, 6))
    assert [p.name for p in points] == SKIP_CUTS


@pytest.mark.parametrize("at", SKIP_CUTS)
def test_skip_net_in_two(at: str) -> None:
    torch.manual_seed(0)
    check_exact(SkipNet(), at, torch.randn(2, 3, 6, 6))


@pytest.mark.parametrize(
    "at", [("stem", "tail.1"), ("stem", "blocks.2"), ("blocks.0", "blocks.2"), ("blocks", "tail.1")]
)
def test_skip_net_in_three(at: tuple[str, str]) -> None:
    torch.manual_seed(0)
    check_exact(SkipNet(), at, torch.randn(2, 3, 6, 6))


def test_u_shape_begins_the_tail_with_the_second_module() -> None:
    head, body, tail = cut(SkipNet(), at=("stem", "tail.1"))
    assert set(head.state_dict()) == {"stem.weight", "stem.bias"}
    assert {"scale", "blocks.0.conv1.weight", "tail.0.weight"} <= body.state_dict().keys()
    # What forward never reads goes with the last part.
    assert {"tail.1.weight", "tail.1.bias", "never.weight", "never.bias"} == set(tail.state_dict())


def nested() -> nn.Sequential:
    inner = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
    features = nn.Sequential(inner, Noisy(), nn.Conv2d(4, 4, 1))
    model = nn.Sequential()
    model.add_module("features", features)
    model.add_module("rest", nn.Sequential(nn.Dropout(0.5, inplace=True), nn.Flatten()))
    model.add_module("fc", nn.Linear(4 * 9, 2))
    return model


NESTED_CUTS = ["features.0.0", "features.0.1", "features.0", "features.1", "features"]


@pytest.mark.parametrize("at", [*NESTED_CUTS, "rest.0", "rest", ("features.0.1", "rest.1")])
def test_nested_sequential(at: str | tuple[str, str]) -> None:
    torch.manual_seed(0)
    check_exact(nested(), at, torch.randn(2, 3, 3, 3))


def test_sequential_needs_no_traceable_children() -> None:
    client, server = cut(nested(), at="features.0.0")
    assert list(client.state_dict()) == ["features.0.0.weight", "features.0.0.bias"]
    assert isinstance(server.get_submodule("features.1"), Noisy)


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


def test_parts_load_into_the_whole() -> None:
    torch.manual_seed(0)
    client, server = cut(SkipNet(), at="blocks.0")
    other = SkipNet()
    other.load_state_dict({**client.state_dict(), **server.state_dict()})
    again = cut(other, at="blocks.0")
    again[0].load_state_dict(client.state_dict())
    x = torch.randn(2, 3, 6, 6)
    with torch.no_grad():
        expected = server.eval()(client.eval()(x))
        assert torch.equal(other.eval()(x), expected)


def test_parts_share_with_the_model_and_copies_do_not() -> None:
    model = SkipNet()
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


def test_model_is_left_as_it_was() -> None:
    model = SkipNet()
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


def test_modes_of_the_parts_are_independent() -> None:
    """One dropout module serves both sides; the server's mode must not reach the client's."""
    client, server = cut(SkipNet(), at="blocks")
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
    assert [p.name for p in cut_points(model, (x, y))] == ["join"]


def test_a_part_can_be_cut_again() -> None:
    model = SkipNet().eval()
    client, server = cut(model, at="blocks")
    head, neck = cut(client, at="stem")
    body, tail = cut(server, at="tail.0")
    x = torch.randn(2, 3, 6, 6)
    with torch.no_grad():
        assert torch.equal(tail(body(neck(head(x)))), model(x))


def test_hooks_inside_the_model_stay() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), nn.Linear(3, 2))
    for module in (model[0], model[0][1], model[1]):
        module.register_forward_hook(lambda module, inputs, output: output * 2)
    check_exact(model, "0.0", torch.randn(2, 3))
    check_exact(model, "0", torch.randn(2, 3))
