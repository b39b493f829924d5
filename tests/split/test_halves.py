"""The halves and the mean, without any wire between them."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cutlayer import cut
from cutlayer.errors import ModelError
from cutlayer.split.client import ClientHalf, ClientModel
from cutlayer.split.server import ServerHalf
from cutlayer.split.weights import add_weighted, assign, flatten, mean_weights, unflatten
from cutlayer.tasks.classification import Classification


def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)
    )


def batch(seed: int, n: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, 6, generator=g), torch.randint(3, (n,), generator=g)


def test_a_server_whose_layers_do_not_fit_says_so_unless_a_peer_may_be_to_blame() -> None:
    smashed, targets = torch.randn(5, 8), torch.zeros(5, dtype=torch.int64)
    for guarded, error in ((False, ModelError), (True, RuntimeError)):
        half = ServerHalf(nn.Linear(9, 3), sgd, Classification(3), guarded=guarded)
        with pytest.raises(error, match="cannot be multiplied" if guarded else r"smashed data \[5, 8\] \("):
            half.train(smashed, targets)


def test_shares() -> None:
    assert mean_weights([30, 10], "samples") == [0.75, 0.25]
    assert mean_weights([30, 10], "clients") == [0.5, 0.5]


def test_one_vector_of_weight_one_is_itself() -> None:
    vector = torch.tensor([0.1, -0.0, 3.0])
    total = add_weighted(None, vector, 1.0)
    assert total is vector
    assert torch.equal(add_weighted(torch.ones(3), vector, 0.5), torch.tensor([1.05, 1.0, 2.5]))


def test_vectors_keep_order_and_types() -> None:
    tensors = [torch.randn(2, 3), torch.tensor(7), torch.randn(4, dtype=torch.float64)]
    vector = flatten(tensors)
    assert vector.shape == (11,)
    assert vector.dtype == torch.float32
    back = unflatten(vector, tensors)
    assert [t.shape for t in back] == [t.shape for t in tensors]
    assert [t.dtype for t in back] == [t.dtype for t in tensors]
    assert torch.equal(back[0], tensors[0])
    assert back[1] == 7
    target = [torch.zeros_like(t) for t in tensors]
    assign(target, vector)
    assert torch.equal(target[0], tensors[0])
    assert flatten([]).numel() == 0


def test_sharers_keep_their_own_statistics(model: nn.Sequential) -> None:
    head, _ = cut(model, "2")
    alone = [ClientHalf(ClientModel([copy.deepcopy(head)], sgd)) for _ in range(2)]
    together = ClientModel([head], sgd)
    sharing = [ClientHalf(together, shared=True) for _ in range(2)]
    for halves in (alone, sharing):
        for i, half in enumerate(halves):
            smashed = half.forward(batch(i)[0])
            half.backward(torch.ones_like(smashed))
    for a, b in zip(alone, sharing, strict=True):
        assert torch.equal(a.gradient_vector(), b.gradient_vector())
        assert torch.equal(a.buffer_vector(), b.buffer_vector())
    assert not torch.equal(sharing[0].buffer_vector(), sharing[1].buffer_vector())
    assert together.buffer_names == ["1.running_mean", "1.running_var", "1.num_batches_tracked"]


def test_a_mean_is_applied_once(model: nn.Sequential) -> None:
    head, _ = cut(model, "2")
    shared = ClientModel([head], sgd)
    halves = [ClientHalf(shared, shared=True) for _ in range(3)]
    gradients = torch.ones(sum(p.numel() for p in shared.parameters))
    asked = []
    for half in halves:
        half.apply_mean(lambda: asked.append(1) or gradients, 0.1, number=0)
    assert len(asked) == 1
    once = halves[0].weight_vector()
    halves[0].apply_mean(lambda: gradients, 0.1, number=1)
    assert not torch.equal(once, halves[0].weight_vector())


def test_the_server_returns_gradients_of_each_clients_own_loss(model: nn.Sequential) -> None:
    head, tail = cut(model, "2")
    server = ServerHalf(tail, sgd, Classification(3))
    fused = ServerHalf(copy.deepcopy(tail), sgd, Classification(3))
    clients = [(head(x).detach(), y) for x, y in (batch(1, 5), batch(2, 3))]
    weights = [0.75, 0.25]
    losses, gradients = fused.train_fused([z for z, _ in clients], [y for _, y in clients], weights)
    for i, (z, y) in enumerate(clients):
        leaf = z.clone().requires_grad_()
        loss = F.cross_entropy(tail(leaf), y)
        (expected,) = torch.autograd.grad(loss, leaf)
        found, gradient = server.train(z, y, weights[i])
        assert found == pytest.approx(float(loss.detach()))
        torch.testing.assert_close(gradient, expected)
        assert losses[i] == pytest.approx(found)
        torch.testing.assert_close(gradients[i], expected)
    for half in (server, fused):
        half.update(0.1)
    for a, b in zip(server.parameters, fused.parameters, strict=True):
        torch.testing.assert_close(a, b)


def test_a_discarded_step_leaves_no_trace(model: nn.Sequential) -> None:
    head, tail = cut(model, "2")
    server = ServerHalf(tail, sgd, Classification(3))
    before = flatten(server.parameters)
    x, y = batch(1)
    server.train(head(x).detach(), y)
    server.forward(0, head(x).detach())
    server.discard()
    server.update(0.1)
    assert torch.equal(before, flatten(server.parameters))
    with pytest.raises(KeyError):
        server.backward(0, torch.zeros(5, 3))


def test_halves_complain_about_the_wrong_order(model: nn.Sequential) -> None:
    half = ClientHalf(ClientModel([cut(model, "2")[0]], sgd))
    with pytest.raises(RuntimeError, match="without a forward"):
        half.backward(torch.zeros(5, 8))
    with pytest.raises(RuntimeError, match="no tail"):
        half.finish_forward(torch.zeros(5, 8), torch.zeros(5, dtype=torch.int64), F.cross_entropy)
