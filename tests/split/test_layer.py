"""The straight-through cut layer."""

import copy
import pickle

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


def test_a_commitment_pulls_towards_what_was_decoded() -> None:
    x = torch.randn(5, 20, requires_grad=True)
    weight = torch.randn(5, 20)
    layer = cutlayer.CutLayer("qu:bits=2", commitment=0.1)
    y = layer(x)
    (y * weight).sum().backward()
    lost = (x - y).detach()
    torch.testing.assert_close(x.grad, weight + 0.1 * weight.norm() / x.norm() * lost)


def test_a_commitment_works_in_half_precision() -> None:
    x = (100 * torch.randn(64, 500)).half().requires_grad_()
    y = cutlayer.CutLayer("qu:bits=2", commitment=0.1)(x)
    y.sum().backward()
    lost = (x - y).detach().float()
    pull = 0.1 * (64 * 500) ** 0.5 / x.detach().float().norm() * lost
    torch.testing.assert_close(x.grad.float(), 1 + pull, rtol=2e-3, atol=1e-3)


def test_a_commitment_keeps_the_precision_of_a_gradient() -> None:
    x = torch.randn(5, 20, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(5, 20, dtype=torch.float64)
    (cutlayer.CutLayer("dense", commitment=0.1)(x) * weight).sum().backward()
    torch.testing.assert_close(x.grad, weight, rtol=1e-9, atol=1e-9)


def test_a_commitment_to_what_arrives_exactly_or_overflows_changes_nothing() -> None:
    some = torch.randn(5, 20)
    for x, spec, factor in (
        (some, "dense", 1.0),
        (some, "qu:bits=2", torch.inf),
        (0 * some, "qu:bits=2", 1.0),
    ):
        x = x.clone().requires_grad_()
        (cutlayer.CutLayer(spec, commitment=0.1)(x) * factor).sum().backward()
        assert torch.equal(x.grad, torch.full_like(x, factor))
    with pytest.raises(InputError, match="commitment must be from 0 to 10, not -1"):
        cutlayer.CutLayer("qu:bits=2", commitment=-1)


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


def test_a_number_is_not_a_codec() -> None:
    with pytest.raises(InputError, match="down must be a codec, a spec such as"):
        cutlayer.CutLayer(up=None, down=3)  # type: ignore[arg-type]


def through(layer: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 32), nn.ReLU(), layer, nn.Linear(32, 2))


def gradients(model: nn.Module, loss: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("spec", ["ems:bpe=1.0", "rt:ratio=0.5,alpha=0.5"])
def test_it_compiles_whole_and_computes_the_same(spec: str) -> None:
    x = torch.randn(8, 6)
    layer = cutlayer.CutLayer(cutlayer.codec(spec), cutlayer.codec("qu:bits=8"), commitment=0.1)
    model = through(layer)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for call in range(3):
        expected = gradients(model, model(x).square().sum())
        layer.calls = call
        found = gradients(model, compiled(x).square().sum())
        assert layer.calls == call + 1
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert layer.last_up.bytes < layer.last_up.raw_bytes
    assert torch.equal(compiled.eval()(x), model.eval()(x))


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize(
    "codecs", [("rt:ratio=0.5,alpha=0.5", "qu:bits=2,rounding=stochastic"), ("ms", "ms")]
)
def test_checkpointing_encodes_again_what_was_encoded(codecs: tuple[str, str], reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    batches = [torch.randn(4, 6, requires_grad=True) for _ in range(2)]
    found = []
    for again in (False, True):
        layer = cutlayer.CutLayer(*codecs, seed=5)
        model = through(layer)
        for _ in range(2):
            outputs = [checkpoint(model, x, use_reentrant=reentrant) if again else model(x) for x in batches]
            # Both batches are under way at a time, and nothing else moves the generator on.
            found.append(gradients(model, sum(y.square().sum() for y in outputs)))
        assert layer.calls == 4
    for plain, checkpointed in zip(found[:2], found[2:], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(plain, checkpointed, strict=True))


def test_a_gradient_that_overflows_skips_the_step_of_a_scaler() -> None:
    layer = cutlayer.CutLayer(up="qu:bits=8", down="qu:bits=8")
    model = through(layer)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    before = [p.clone() for p in model.parameters()]
    scaler.scale(model(torch.randn(4, 6)).square().sum() * 1e6).backward()
    scaler.step(optimizer)
    scaler.update()
    assert layer.overflows == 1
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))
    assert scaler.get_scale() == 2.0**126
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    optimizer.zero_grad()
    scaler.scale(model(torch.randn(4, 6)).square().sum()).backward()
    scaler.step(optimizer)
    assert layer.overflows == 1
    assert not torch.equal(next(model.parameters()), before[0])


def test_specs_are_taken_as_well_as_codecs() -> None:
    layer = cutlayer.CutLayer(up="ms", down="qu:bits=4")
    assert layer.up == cutlayer.codec("ms")
    assert layer.down == cutlayer.codec("qu:bits=4")
    with pytest.raises(cutlayer.errors.SpecError, match="no codec 'mss'"):
        cutlayer.CutLayer(up="mss")


def test_it_is_copied_and_pickled() -> None:
    layer = cutlayer.CutLayer(up="rt:ratio=0.5,alpha=0.5", seed=7)
    x = torch.rand(4, 100)
    layer(x)
    copies = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))]  # noqa: S301, our own
    expected = layer(x)
    for other in copies:
        assert torch.equal(other(x), expected)
        assert torch.equal(torch.compile(other, backend="aot_eager")(x), layer(x))
        layer.calls -= 1


def test_several_tensors_cross_by_name() -> None:
    layer = cutlayer.CutLayer(up="qu:bits=8")
    x = {"hidden": torch.randn(3, 4), "mask": torch.tensor([True, False]), "skip": torch.randn(3, 9)}
    y = layer(x)
    assert list(y) == list(x)
    assert y["mask"] is x["mask"]
    assert torch.equal(y["skip"], cutlayer.decode(layer.up.encode(x["skip"])))
    assert layer.last_up.raw_bytes == 4 * (12 + 27)
