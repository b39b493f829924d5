"""Cuts through which several tensors go: skip connections, branches, masks, and what need not be sent."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutlayer.errors import CutError
from cutlayer.split import cut, cut_points
from cutlayer.split.client import ClientHalf, ClientModel
from cutlayer.split.server import ServerHalf
from cutlayer.tasks.segmentation import Segmentation


class UNet(nn.Module):
    """Two levels, skip connections, functional pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.down1 = nn.Conv2d(1, 4, 3, padding=1)
        self.down2 = nn.Conv2d(4, 8, 3, padding=1)
        self.bottom = nn.Conv2d(8, 8, 3, padding=1)
        self.up2 = nn.Conv2d(16, 4, 3, padding=1)
        self.up1 = nn.Conv2d(8, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = F.relu(self.down1(x))
        b = F.relu(self.down2(F.max_pool2d(a, 2)))
        c = self.bottom(F.max_pool2d(b, 2))
        d = self.up2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        return self.up1(torch.cat([F.interpolate(d, scale_factor=2), a], 1))


class Masked(nn.Module):
    """Tokens with a mask: attention over pairs, causal; positions made of the sizes; a dict as output."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.first = nn.Linear(6, 6)
        self.drop = nn.Dropout(0.5)
        self.second = nn.Linear(6, 6)

    def mix(self, x: Tensor, bias: Tensor) -> Tensor:
        return (x @ x.transpose(1, 2) + bias).softmax(-1) @ x

    def forward(self, ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
        count, length = ids.shape
        place = torch.arange(length, device=ids.device)
        ahead = place[None, :] > place[:, None]
        bias = torch.zeros(count, length, length, device=ids.device)
        bias = bias.masked_fill(ahead | (mask[:, None, :] == 0), -1e4)
        x = self.first(self.mix(self.embed(ids), bias))
        x = self.second(self.mix(self.drop(x), bias)) + place[:, None] / 10
        return {"logits": x, "mean": x.mean(1)}


def gradients(model: nn.Module) -> dict[str, Tensor]:
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def chained(parts: Any, *inputs: Tensor) -> Any:
    value = parts[0](*inputs)
    for part in parts[1:]:
        value = part(value)
    return value


@pytest.mark.parametrize("at", ["down2", "bottom", ("down1", "up1"), ("down2", "up2"), ("down2", "bottom")])
def test_unet_is_the_same_in_parts(at: Any) -> None:
    model, x = UNet(), torch.randn(2, 1, 8, 8)
    parts = cut(model, at=at)
    model(x).square().sum().backward()
    expected = gradients(model)
    output = chained(parts, x)
    assert torch.equal(output, model(x))
    output.square().sum().backward()
    assert equal(gradients(model), expected)


def test_what_crosses_has_names_and_an_order() -> None:
    client, server = cut(UNet(), at="bottom")
    crossing = client(torch.randn(2, 1, 8, 8))
    assert list(crossing) == list(server.inputs) == ["relu", "relu_1", "bottom"]
    assert [tuple(t.shape) for t in crossing.values()] == [(2, 4, 8, 8), (2, 8, 4, 4), (2, 8, 2, 2)]
    assert torch.equal(server(crossing), server(**crossing))
    with pytest.raises(CutError, match="takes relu, relu_1, bottom; it got bottom, relu"):
        server({"bottom": crossing["bottom"], "relu": crossing["relu"]})


def test_cut_points_show_all_tensors() -> None:
    points = {p.name: p for p in cut_points(UNet(), torch.zeros(1, 1, 8, 8))}
    assert [(t.name, t.shape) for t in points["down2"].others] == [("relu", (4, 8, 8))]
    assert points["down2"].shape == (8, 4, 4)
    assert points["down2"].elements == 8 * 16 + 4 * 64
    assert points["down2"].raw_bytes == 4 * points["down2"].elements
    assert points["down1"].others == ()


@pytest.fixture
def tokens() -> tuple[Tensor, Tensor]:
    mask = torch.ones(3, 5, dtype=torch.int64)
    mask[1, 3:] = 0
    return torch.randint(0, 11, (3, 5)), mask


@pytest.fixture(scope="module")
def masked() -> tuple[nn.Module, nn.Module, nn.Module]:
    """The model and its parts, for tests that do not change them."""
    ids = torch.zeros(2, 5, dtype=torch.int64)
    model = Masked().eval()
    client, server = cut(model, at="first", example=(ids, ids))
    return model, client.eval(), server.eval()


def test_only_hidden_states_and_the_small_mask_cross(masked: Any, tokens: tuple[Tensor, Tensor]) -> None:
    model, client, server = masked
    crossing = client(*tokens)
    # Neither positions nor the mask of pairs: the other side makes them.
    assert {n: (tuple(t.shape), t.dtype) for n, t in crossing.items()} == {
        "mask": ((3, 5), torch.int64),
        "first": ((3, 5, 6), torch.float32),
    }
    found, expected = server(crossing), model(*tokens)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


@pytest.mark.parametrize("shape", [(1, 7), (4, 2), (2, 1)])
def test_batches_and_sequences_may_have_other_sizes(shape: tuple[int, int], masked: Any) -> None:
    model, *parts = masked
    ids = torch.randint(0, 11, shape)
    mask = torch.ones(shape, dtype=torch.int64)
    assert torch.equal(chained(parts, ids, mask)["logits"], model(ids, mask)["logits"])


def test_dropout_follows_the_mode(tokens: tuple[Tensor, Tensor]) -> None:
    model = Masked()
    client, server = cut(model, at="first", example={"ids": tokens[0], "mask": tokens[1]})
    torch.manual_seed(1)
    expected = model.train()(*tokens)["logits"]
    torch.manual_seed(1)
    assert torch.equal(server.train()(client.train()(*tokens))["logits"], expected)


def test_keywords_and_what_says_nothing(masked: Any, tokens: tuple[Tensor, Tensor]) -> None:
    _, client, _ = masked
    expected = client(*tokens)
    found = client(mask=tokens[1], ids=tokens[0], labels=None)
    assert torch.equal(found["first"], expected["first"])
    with pytest.raises(CutError, match="takes ids, mask; it got ids"):
        client(ids=tokens[0])


def test_tokens_never_travel(tokens: tuple[Tensor, Tensor]) -> None:
    class Echo(Masked):
        def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
            return self.second(self.first(self.embed(ids))) * ids[..., None]

    with pytest.raises(CutError, match=r"(input ids|made of data,) itself would cross"):
        cut(Echo(), at="first", example=tokens)


def test_what_is_made_of_data_late_is_made_by_the_client(tokens: tuple[Tensor, Tensor]) -> None:
    class Padded(Masked):
        def forward(self, ids: Tensor) -> Tensor:
            return self.second(self.first(self.embed(ids))) * (ids != 0)[..., None]

    model = Padded().eval()
    client, server = cut(model, at="first", example=tokens[:1])
    crossing = client.eval()(tokens[0])
    assert [(tuple(t.shape), t.dtype) for t in crossing.values()] == [
        ((3, 5, 6), torch.float32),
        ((3, 5), torch.bool),
    ]
    assert torch.equal(server.eval()(crossing), model(tokens[0]))


def test_data_do_not_cross_in_another_shape_either() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            x = x.flatten(1)
            return self.b(self.a(x)) + x

    for example in (None, torch.zeros(2, 2, 2)):
        with pytest.raises(CutError, match="flatten, made of data, itself would cross"):
            cut(Flat(), at="a", example=example)


def test_deciding_by_values_names_the_operation(tokens: tuple[Tensor, Tensor]) -> None:
    class Deciding(Masked):
        def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
            x = self.first(self.embed(ids))
            return self.second(x) if bool(mask.all()) else x

    with pytest.raises(CutError, match=r"aten\.\w+.* needs the values of a tensor.*module of its own"):
        cut(Deciding(), at="first", example=tokens)


def test_another_path_for_other_sizes_is_noticed(tokens: tuple[Tensor, Tensor]) -> None:
    class Long(Masked):
        def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
            x = self.first(self.embed(ids))
            return self.second(x) if ids.shape[1] < 8 else x

    client, _ = cut(Long(), at="first", example=tokens)
    long = torch.zeros(2, 9, dtype=torch.int64)
    with pytest.raises(CutError, match="takes another path for inputs of the shapes"):
        client(long, long)


def test_state_kept_from_call_to_call_is_noticed(tokens: tuple[Tensor, Tensor]) -> None:
    class Kept(Masked):
        def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
            x = self.first(self.embed(ids)) + len(self.__dict__.setdefault("calls", [])) * mask[..., None]
            self.calls.append(1)
            return self.second(x)

    with pytest.raises(CutError, match="do not compute what the whole model does"):
        cut(Kept(), at="first", example=tokens)


def copied(part: nn.Module) -> nn.Module:
    return copy.deepcopy(part)


def pickled(part: nn.Module) -> nn.Module:
    return pickle.loads(pickle.dumps(part))  # noqa: S301, our own


@pytest.mark.parametrize("how", [copied, pickled])
def test_parts_are_copied_and_pickled(how: Callable[[nn.Module], nn.Module], tokens: Any) -> None:
    for model, at, inputs in (
        (UNet(), "down2", (torch.randn(2, 1, 8, 8),)),
        (Masked().eval(), "first", tokens),
    ):
        parts = cut(model, at=at, example=inputs)
        again = [how(part) for part in parts]
        for part in (*parts, *again):
            part.eval()
        expected, found = chained(parts, *inputs), chained(again, *inputs)
        assert torch.equal(*(x if isinstance(x, Tensor) else x["logits"] for x in (expected, found)))
        assert not {id(p) for part in parts for p in part.parameters()} & {
            id(p) for part in again for p in part.parameters()
        }


def halves(model: nn.Module, at: Any, **how: Any) -> tuple[ClientHalf, ServerHalf]:
    head, body, *tail = cut(model, at=at, **how)

    def sgd(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1)

    return ClientHalf(ClientModel((head, *tail), sgd)), ServerHalf(body, sgd, Pixels(3, (8, 8)))


class Pixels(Segmentation):
    """A class for each pixel, with the loss that plain PyTorch has to the last bit."""

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets)


@pytest.mark.parametrize("at", ["down2", ("down2", "up1"), ("bottom", "up2")])
def test_one_client_equals_plain_training(at: Any) -> None:
    torch.manual_seed(0)
    split, whole = UNet(), UNet()
    whole.load_state_dict(split.state_dict())
    client, server = halves(split, at)
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
    for _ in range(3):
        x, y = torch.randn(2, 1, 8, 8), torch.randint(0, 3, (2, 8, 8))
        smashed = client.forward(x)
        if client.model.tail is None:
            _, back = server.train(smashed, y)
        else:
            _, gradient = client.finish_forward(server.forward(0, smashed), y, F.cross_entropy)
            back = server.backward(0, gradient)
        client.backward(back)
        client.step(0.1)
        server.update(0.1)
        optimizer.zero_grad()
        F.cross_entropy(whole(x), y).backward()
        optimizer.step()
    assert equal(dict(split.state_dict()), dict(whole.state_dict()))


class Tied(nn.Module):
    """Reads and writes through one matrix, as language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Embedding(7, 6)
        self.middle = nn.Linear(6, 6)
        self.write = nn.Linear(6, 7, bias=False)
        self.write.weight = self.read.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.write(self.middle(self.read(ids)).tanh())


def test_head_and_tail_may_share_weights() -> None:
    torch.manual_seed(0)
    split, whole = Tied(), Tied()
    whole.load_state_dict(split.state_dict())
    client, server = halves(split, ("read", "write"))
    assert client.model.parameter_names == ["read.weight"]
    assert client.weight_vector().numel() == 42
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
    for _ in range(3):
        x, y = torch.randint(0, 7, (4,)), torch.randint(0, 7, (4,))
        smashed = client.forward(x)
        _, gradient = client.finish_forward(server.forward(0, smashed), y, F.cross_entropy)
        client.backward(server.backward(0, gradient))
        client.step(0.1)
        server.update(0.1)
        optimizer.zero_grad()
        F.cross_entropy(whole(x), y).backward()
        optimizer.step()
    assert equal(dict(split.state_dict()), dict(whole.state_dict()))


def test_fused_batches_of_several_tensors() -> None:
    client, server = halves(UNet(), "down2")
    x, y = torch.randn(4, 1, 8, 8), torch.randint(0, 3, (4, 8, 8))
    smashed = [client.forward(part) for part in x.split(2)]
    losses, back = server.train_fused(smashed, y.split(2), [0.5, 0.5])
    for batch, target, loss, gradient in zip(smashed, y.split(2), losses, back, strict=True):
        alone, expected = server.train(batch, target)
        assert loss == pytest.approx(alone)
        for name in expected:
            torch.testing.assert_close(gradient[name], expected[name])


def test_a_gradient_under_a_wrong_name_is_refused() -> None:
    client, _ = halves(UNet(), "down2")
    smashed = client.forward(torch.randn(2, 1, 8, 8))
    with pytest.raises(ValueError, match="gradients of relu; expected relu, down2"):
        client.backward({"relu": smashed["relu"]})
