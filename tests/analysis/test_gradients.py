import pytest
import torch
from torch import nn
from torch.nn import functional as F

import cutlayer
from cutlayer.analysis import Gradient, Probe, compare_gradients, mean_gradient
from cutlayer.errors import InputError


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(144, 6),
        nn.ReLU(),
        nn.Linear(6, 3),
    )


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(1)
    return torch.randn(8, 1, 8, 8, generator=g), torch.randint(3, (8,), generator=g)


def test_without_a_codec_it_is_the_gradient_of_the_whole_model() -> None:
    model, (x, y) = net(), batch()
    found = Probe(cutlayer.cut(model, "2"), x, y).gradient()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    assert found.loss == pytest.approx(float(loss.detach()))
    assert set(found.client) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    for name, p in model.named_parameters():
        torch.testing.assert_close(found.named[name], p.grad)
    assert found.error == 0


def test_with_a_codec_it_is_what_a_cut_layer_trains_on() -> None:
    model, (x, y) = net(), batch()
    codec = cutlayer.codec("sp:ratio=0.8")
    client, server = cutlayer.cut(model, "2")
    found = Probe((client, server), x, y).gradient(codec, cutlayer.codec("qu:bits=4"))
    layer = cutlayer.CutLayer(codec, cutlayer.codec("qu:bits=4"))
    smashed = client(x)
    F.cross_entropy(server(layer(smashed)), y).backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(found.named[name], p.grad)
    lost = smashed.detach() - cutlayer.decode(codec.encode(smashed.detach()))
    assert found.error == pytest.approx(float(lost.norm()), rel=1e-5)
    assert found.relative_error == pytest.approx(
        float(lost.norm() ** 2 / smashed.detach().norm() ** 2), rel=1e-5
    )


def test_sensitivity_does_not_depend_on_the_scale_of_the_smashed_data() -> None:
    """The same network with activations ten times as large: E grows tenfold, the sensitivity stays."""
    (x, y), found = batch(), []
    for scale in (1.0, 10.0):
        torch.manual_seed(0)
        first, last = nn.Linear(64, 12), nn.Linear(12, 3, bias=False)
        with torch.no_grad():
            first.weight *= scale
            first.bias *= scale
            last.weight /= scale
        model = nn.Sequential(nn.Flatten(), first, nn.ReLU(), last)
        probe = Probe(cutlayer.cut(model, "2"), x, y)
        compressed = probe.gradient(cutlayer.codec("sp:ratio=0.8"))
        found.append(compare_gradients(probe.gradient(), compressed, part="client"))
    assert found[1].sensitivity == pytest.approx(found[0].sensitivity, rel=1e-4)
    assert found[1].per_error != pytest.approx(found[0].per_error, rel=0.5)


def test_a_u_shape_has_its_tail_on_the_clients_side() -> None:
    model, (x, y) = net(), batch()
    found = Probe(cutlayer.cut(model, ("2", "6")), x, y).gradient()
    assert set(found.server) == {"4.weight", "4.bias"}
    F.cross_entropy(model(x), y).backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(found.named[name], p.grad)


def test_nothing_of_the_model_changes() -> None:
    model, (x, y) = net(), batch()
    before = {name: t.clone() for name, t in model.state_dict().items()}
    state = torch.random.get_rng_state()
    Probe(cutlayer.cut(model, "2"), x, y).gradient(cutlayer.codec("rt"))
    assert all(torch.equal(t, model.state_dict()[name]) for name, t in before.items())
    assert torch.equal(state, torch.random.get_rng_state())


def test_the_seed_decides_what_random_codecs_do() -> None:
    probe = Probe(cutlayer.cut(net(), "2"), *batch())
    codec = cutlayer.codec("qu:bits=1,rounding=stochastic")
    one, same, other = (probe.gradient(codec, seed=seed).vector() for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def gradient(client: list[float], server: list[float], error: float = 0.0) -> Gradient:
    return Gradient({"a": torch.tensor(client)}, {"b": torch.tensor(server)}, 0.0, error, error / 100)


def test_comparison_by_hand() -> None:
    found = compare_gradients(gradient([3.0], [4.0]), gradient([3.0], [1.0], error=6.0))
    assert found.norm == pytest.approx(3)
    assert found.relative == pytest.approx(0.6)
    assert found.cosine == pytest.approx((9 + 4) / (5 * 10**0.5))
    assert found.inner == pytest.approx(-12 / 25)
    assert found.per_error == pytest.approx(0.5)
    assert found.sensitivity == pytest.approx(0.6 / 0.06**0.5)
    full = gradient([0.0], [-2.0])
    assert compare_gradients(gradient([3.0], [4.0]), gradient([3.0], [1.0]), full).inner == pytest.approx(1.5)
    assert compare_gradients(gradient([3.0], [4.0]), gradient([3.0], [1.0]), part="client").norm == 0


def test_means_and_mistakes() -> None:
    mean = mean_gradient([gradient([1.0], [0.0], 2.0), gradient([3.0], [4.0], 4.0)])
    assert mean.vector().tolist() == [2, 2]
    assert mean.error == 3
    assert mean.relative_error == pytest.approx(0.03)
    with pytest.raises(InputError, match="not of one model"):
        compare_gradients(gradient([1.0], [1.0]), gradient([1.0, 2.0], [1.0]))
    with pytest.raises(InputError, match="1 parts"):
        Probe([net()], *batch())
    with pytest.raises(InputError, match="one or more"):
        mean_gradient([])
