"""Split training computes what its formulas say: each mode against a few lines of plain PyTorch."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cutlayer import cut
from cutlayer.data import Sampler
from cutlayer.models import cut_module
from cutlayer.protocol.build import prepare_model
from cutlayer.protocol.plan import Step
from cutlayer.training.local_run import LocalRun

Start = Callable[..., LocalRun]


def batch(session: LocalRun, step: Step, client: int) -> tuple[Tensor, Tensor]:
    """What a client trains on, computed from the run's data alone."""
    data, config = session.data, session.config
    sampler = Sampler(data.parts[client], config.train.batch_size, seed=config.seed, client=client)
    indices = sampler.batch(step.epoch, step.step)
    place = {"seed": config.seed, "client": client, "epoch": step.epoch, "step": step.step}
    return data.augment.train(data.train.images[indices], **place), data.train.labels[indices]


def optimizer(session: LocalRun, parameters: object) -> torch.optim.Optimizer:
    t = session.config.train
    if t.optimizer == "adamw":
        return torch.optim.AdamW(parameters, t.lr, weight_decay=t.weight_decay)
    return torch.optim.SGD(parameters, t.lr, t.momentum, weight_decay=t.weight_decay, nesterov=t.nesterov)


def fresh(session: LocalRun) -> nn.Module:
    return prepare_model(session.config, session.data.train)[0]


def halves(session: LocalRun) -> tuple[nn.Module, nn.Module]:
    at = cut_module(session.config.model.name, session.config.model.cut)
    return cut(fresh(session), at)


def apply(opt: torch.optim.Optimizer, model: nn.Module, gradients: list[Tensor], lr: float) -> None:
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient
    opt.param_groups[0]["lr"] = lr
    opt.step()


def mean(lists: list[list[Tensor]], weights: list[float]) -> list[Tensor]:
    return [sum(w * g for w, g in zip(weights, gs, strict=True)) for gs in zip(*lists, strict=True)]


def same(session: LocalRun, *parts: nn.Module, exact: bool = False, buffers: bool = True) -> None:
    expected = {name: t for part in parts for name, t in part.state_dict().items()}
    found = session.model().state_dict()
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        if not buffers and ("running" in name or "batches" in name):
            continue
        if exact:
            assert torch.equal(found[name], tensor), name
        else:
            torch.testing.assert_close(
                found[name], tensor, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n} {m}"
            )


@pytest.mark.parametrize(
    ("mode", "sync"),
    [
        ("parallel", "step"),
        ("parallel", "2"),
        ("sequential", "step"),
        ("relay", "epoch"),
        ("u-shaped", "step"),
    ],
)
@pytest.mark.parametrize(
    "model", [["model.name=tiny"], ["model.name=resnet18", "model.cut=shallow"], ["train.optimizer=adamw"]]
)
def test_one_client_is_plain_training_to_the_last_bit(
    start: Start, model: list[str], mode: str, sync: str
) -> None:
    if mode == "u-shaped":
        model = [*model, 'model.cut=["layer1", "fc"]']
    session = start("train.clients=1", "data.limit=40", f"train.mode={mode}", f"train.sync={sync}", *model)
    whole = fresh(session).train()
    opt = optimizer(session, whole.parameters())
    while not session.done:
        step = session.server.plan.at(session.number)
        images, labels = batch(session, step, 0)
        opt.param_groups[0]["lr"] = step.lr
        opt.zero_grad()
        loss = F.cross_entropy(whole(images), labels)
        loss.backward()
        opt.step()
        assert session.step().loss == float(loss.detach())
        same(session, whole, exact=True)
    assert session.number == 2 * 5


@pytest.mark.parametrize("weighting", ["clients", "samples"])
@pytest.mark.parametrize("mode", ["parallel", "u-shaped"])
@pytest.mark.parametrize("clients", [3, 10])
def test_gradients_are_averaged_each_step(start: Start, clients: int, mode: str, weighting: str) -> None:
    at = 'model.cut=["layer1", "fc"]' if mode == "u-shaped" else "model.cut=medium"
    session = start(
        f"train.clients={clients}", "data.partition=dirichlet:alpha=2", f"train.weighting={weighting}",
        f"train.mode={mode}", at, "train.epochs=1",
    )  # fmt: skip
    whole = fresh(session).train()
    opt = optimizer(session, whole.parameters())
    while not session.done:
        step = session.server.plan.at(session.number)
        gradients, losses, sizes = [], [], []
        for client in step.clients:
            images, labels = batch(session, step, client)
            loss = F.cross_entropy(whole(images), labels)
            gradients.append(torch.autograd.grad(loss, list(whole.parameters())))
            losses.append(float(loss.detach()))
            sizes.append(len(labels))
        n = len(step.clients)
        weights = [1 / n] * n if weighting == "clients" else [size / sum(sizes) for size in sizes]
        apply(opt, whole, mean(gradients, weights), step.lr)
        result = session.step()
        assert result.losses == pytest.approx(losses, rel=1e-4)
        assert result.loss == pytest.approx(
            sum(w * x for w, x in zip(weights, losses, strict=True)), rel=1e-4
        )
        same(session, whole, buffers=False)


@pytest.mark.parametrize("batching", ["per_client", "fused"])
@pytest.mark.parametrize("mode", ["parallel", "u-shaped"])
def test_without_batch_norm_many_clients_are_one_big_batch(
    start: Start, plain_model: str, mode: str, batching: str
) -> None:
    at = 'model.cut=["1", "7"]' if mode == "u-shaped" else 'model.cut="2"'
    session = start(
        f"model.name={plain_model}", at, f"train.mode={mode}", f"train.server_batching={batching}",
        "train.clients=10", "train.drop_last=true", "train.epochs=3",
    )  # fmt: skip
    whole = copy.deepcopy(session._whole)
    opt = optimizer(session, whole.parameters())
    while not session.done:
        step = session.server.plan.at(session.number)
        batches = [batch(session, step, client) for client in step.clients]
        images, labels = (torch.cat(x) for x in zip(*batches, strict=True))
        loss = F.cross_entropy(whole(images), labels)
        apply(opt, whole, list(torch.autograd.grad(loss, list(whole.parameters()))), step.lr)
        assert session.step().loss == pytest.approx(float(loss.detach()), rel=1e-4)
    same(session, whole)


def test_fused_sees_all_batches_in_one_batch_norm(start: Start) -> None:
    session = start("train.server_batching=fused", "data.partition=dirichlet:alpha=2", "train.epochs=1")
    client, server = halves(session)
    opts = [optimizer(session, part.parameters()) for part in (client, server)]
    while not session.done:
        step = session.server.plan.at(session.number)
        batches = [batch(session, step, c) for c in step.clients]
        output = server(torch.cat([client(images) for images, _ in batches]))
        sizes = [len(labels) for _, labels in batches]
        parts = zip(output.split(sizes), batches, strict=True)
        losses = [F.cross_entropy(part, labels) for part, (_, labels) in parts]
        loss = sum(losses) / len(losses)
        gradients = torch.autograd.grad(loss, [*client.parameters(), *server.parameters()])
        own = len(list(client.parameters()))
        apply(opts[0], client, list(gradients[:own]), step.lr)
        apply(opts[1], server, list(gradients[own:]), step.lr)
        assert session.step().losses == pytest.approx([float(x.detach()) for x in losses], rel=1e-4)
    same(session, client, server, buffers=False)


def test_sequential_updates_the_server_after_every_client(start: Start) -> None:
    session = start("train.mode=sequential", "data.partition=dirichlet:alpha=2", "train.epochs=1")
    client, server = halves(session)
    opts = [optimizer(session, part.parameters()) for part in (client, server)]
    own = list(client.parameters())
    while not session.done:
        step = session.server.plan.at(session.number)
        collected, losses = [], []
        for c in step.clients:
            images, labels = batch(session, step, c)
            loss = F.cross_entropy(server(client(images)), labels)
            gradients = torch.autograd.grad(loss, [*own, *server.parameters()])
            collected.append(list(gradients[: len(own)]))
            apply(opts[1], server, list(gradients[len(own) :]), step.lr)
            losses.append(float(loss.detach()))
        apply(opts[0], client, mean(collected, [1 / len(collected)] * len(collected)), step.lr)
        assert session.step().losses == pytest.approx(losses, rel=1e-4)
    same(session, client, server, buffers=False)


@pytest.mark.parametrize("weighting", ["clients", "samples"])
@pytest.mark.parametrize("sync", ["3", "epoch"])
def test_weights_are_averaged_now_and_then(start: Start, sync: str, weighting: str) -> None:
    session = start(
        f"train.sync={sync}", "data.partition=dirichlet:alpha=0.7", f"train.weighting={weighting}"
    )
    client, server = halves(session)
    clients = [copy.deepcopy(client) for _ in range(3)]
    opts = [optimizer(session, part.parameters()) for part in clients]
    opt = optimizer(session, server.parameters())
    trained: dict[int, int] = {}
    while not session.done:
        step = session.server.plan.at(session.number)
        weights = [1 / len(step.clients)] * len(step.clients)
        if weighting == "samples":
            weights = [size / sum(step.samples) for size in step.samples]
        collected = []
        for c in step.clients:
            images, labels = batch(session, step, c)
            trained[c] = trained.get(c, 0) + len(labels)
            loss = F.cross_entropy(server(clients[c](images)), labels)
            own = list(clients[c].parameters())
            gradients = torch.autograd.grad(loss, [*own, *server.parameters()])
            apply(opts[c], clients[c], list(gradients[: len(own)]), step.lr)
            collected.append(list(gradients[len(own) :]))
        apply(opt, server, mean(collected, weights), step.lr)
        due = step.last if sync == "epoch" else (step.number + 1) % 3 == 0
        if due:
            total = sum(trained.values())
            shares = {
                c: n / total if weighting == "samples" else 1 / len(trained) for c, n in trained.items()
            }
            states = {c: clients[c].state_dict() for c in trained}
            average = {
                name: sum(shares[c] * states[c][name] for c in sorted(trained))
                for name in states[min(trained)]
            }
            for part in clients:
                part.load_state_dict({n: t.round() if "batches" in n else t for n, t in average.items()})
            trained.clear()
        session.step()
    found = [half.model.head.state_dict() for half in session.clients.halves]
    for part, state in zip(clients, found, strict=True):
        for name, tensor in part.state_dict().items():
            torch.testing.assert_close(state[name], tensor, rtol=1e-3, atol=1e-4)
    for name, tensor in server.state_dict().items():
        torch.testing.assert_close(session.server.half.part.state_dict()[name], tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("sync", ["step", "2", "epoch"])
def test_relay_hands_the_client_half_from_one_to_the_next(start: Start, sync: str) -> None:
    session = start("train.mode=relay", f"train.sync={sync}", "data.partition=dirichlet:alpha=2")
    client, server = halves(session)
    # One model goes round; each client has its own optimizer.
    opts = [optimizer(session, client.parameters()) for _ in range(3)]
    opt = optimizer(session, server.parameters())
    seen = []
    while not session.done:
        step = session.server.plan.at(session.number)
        (c,) = step.clients
        seen.append((step.epoch, c, step.step))
        images, labels = batch(session, step, c)
        loss = F.cross_entropy(server(client(images)), labels)
        own = list(client.parameters())
        gradients = torch.autograd.grad(loss, [*own, *server.parameters()])
        apply(opts[c], client, list(gradients[: len(own)]), step.lr)
        apply(opt, server, list(gradients[len(own) :]), step.lr)
        assert session.step().loss == pytest.approx(float(loss.detach()), rel=1e-3)
    same(session, client, server)
    batches = session.server.plan.batches
    assert sorted(seen) == sorted((e, c, s) for e in range(2) for c in range(3) for s in range(batches[c]))
    length = {"step": 1, "2": 2, "epoch": 10**6}[sync]
    assert seen[: min(length, batches[0])] == [(0, 0, s) for s in range(min(length, batches[0]))]
