"""The straight-through cut layer."""

import pytest
import torch
from torch import nn

import cutlayer
from cutlayer.errors import InputError


def test_forward_is_decode_of_encode() -> None:
    codec = cutlayer.codec("ms:ratio=0.9,bits=2")
    x = torch.randn(8, 4, 6, 6)
    layer = cutlayer.CutLayer(up=codec)
    assert torch.equal(layer(x), cutlayer.decode(codec.encode(x)))


def test_backward_is_straight_through() -> None:
    x = torch.randn(5, 20, requires_grad=True)
    weight = torch.randn(5, 20)
    (cutlayer.CutLayer(up=cutlayer.codec("sp:ratio=0.9"))(x) * weight).sum().backward()
    assert torch.equal(x.grad, weight)


def test_gradients_can_be_compressed() -> None:
    down = cutlayer.codec("sp:ratio=0.5")
    x = torch.randn(5, 20, requires_grad=True)
    weight = torch.randn(5, 20)
    layer = cutlayer.CutLayer(up=None, down=down)
    (layer(x) * weight).sum().backward()
    assert torch.equal(x.grad, cutlayer.decode(down.encode(weight)))
    assert layer.last_down.bytes == len(down.encode(weight))
    assert layer.last_up.error == 0


def test_it_reports_bytes_and_error() -> None:
    codec = cutlayer.codec("qu:bits=4")
    x = torch.rand(16, 100)
    layer = cutlayer.CutLayer(up=codec)
    y = layer(x)
    report = layer.last_up
    assert report.bytes == len(codec.encode(x))
    assert report.raw_bytes == 6400
    assert report.error == pytest.approx(float(((x - y) ** 2).sum() / (x**2).sum()), rel=1e-4)
    assert report.saving == 6400 / report.bytes
    assert cutlayer.CutLayer(up=codec, measure=False).cross(codec, x, 0)[1].error is None


def test_random_codecs_draw_anew_in_training_and_not_in_evaluation() -> None:
    layer = cutlayer.CutLayer(up=cutlayer.codec("rt:ratio=0.9,alpha=0.5"), seed=3)
    x = torch.rand(4, 300)
    first, second = layer(x), layer(x)
    assert not torch.equal(first, second)
    again = cutlayer.CutLayer(up=layer.up, seed=3)
    assert torch.equal(again(x), first)
    again.calls = 1
    assert torch.equal(again(x), second)
    layer.eval()
    assert torch.equal(layer(x), layer(x))
    assert torch.equal(layer(x), cutlayer.decode(cutlayer.codec("sp:ratio=0.9,scope=sample").encode(x)))


def test_a_model_learns_through_it() -> None:
    torch.manual_seed(0)
    x = torch.randn(256, 10)
    y = (x[:, :2].sum(1) > 0).long()
    layer = cutlayer.CutLayer(up=cutlayer.codec("ms:ratio=0.9,bits=2"), down=cutlayer.codec("qu:bits=8"))
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), layer, nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert (model(x).argmax(1) == y).float().mean() > 0.95


def test_it_adds_nothing_to_the_state_dict_and_prints_its_codecs() -> None:
    layer = cutlayer.CutLayer(up=cutlayer.codec("ms"))
    assert not layer.state_dict()
    assert "ms:ratio=0.99,bits=2" in repr(layer)


def test_half_precision_passes() -> None:
    x = torch.randn(3, 50, dtype=torch.bfloat16, requires_grad=True)
    y = cutlayer.CutLayer(up=cutlayer.codec("ms:ratio=0.5"))(x)
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert x.grad.dtype == torch.bfloat16


def test_a_string_is_not_a_codec() -> None:
    with pytest.raises(InputError, match=r"cutlayer\.codec"):
        cutlayer.CutLayer(up="ms")  # type: ignore[arg-type]
