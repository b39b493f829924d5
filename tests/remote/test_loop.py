"""A loop over the network does what the same loop does in one process, to the bit."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import cutlayer
from cutlayer.errors import ConfigError, InputError, MessageError, RefusedError
from cutlayer.wire.grpc.server import Listening
from cutlayer.wire.metrics import Metrics

Batches = list[tuple[Tensor, Tensor]]


def sgd(*parts: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD([p for part in parts for p in part.parameters()], lr=0.1, momentum=0.9)


def here(net: Callable[[], nn.Sequential], batches: Batches, up: str, down: str, scale: float = 1.0) -> Any:
    """The loop in one process; losses and weights."""
    model = net()
    layer = cutlayer.CutLayer(cutlayer.codec(up), cutlayer.codec(down))
    optimizer, losses = sgd(model), []
    for x, y in batches:
        loss = F.cross_entropy(model[2:](layer(model[:2](x))), y)
        (loss * scale).backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, model.state_dict()


@pytest.mark.parametrize(
    ("up", "down"), [("dense", "dense"), ("qu:bits=4", "qu:bits=6"), ("ems:bpe=2", "dense")]
)
def test_the_loss_at_the_server(serve: Any, net: Any, batches: Batches, up: str, down: str) -> None:
    model = net()
    head, body = model[:2], model[2:]
    served = serve(body, loss=F.cross_entropy, down=down, shape=(16,))
    optimizer, losses = sgd(head), []
    with served.connect(codec=up) as remote:
        for x, y in batches:
            loss = remote(head(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    served.join()
    expected = here(net, batches, up, down)
    assert losses == expected[0]
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, expected[1][name]), name
    sent, counted = remote.meter.snapshot(), served.server.meter.snapshot()
    assert sent["up/smashed"] == counted["up/smashed"] > 0
    assert sent["up/labels"] == counted["up/labels"] > 0
    assert sent["down/gradients"] == counted["down/gradients"] > 0
    assert served.server.updates == len(batches)


def test_the_loss_at_the_client(serve: Any, net: Any, batches: Batches) -> None:
    model = net()
    head, body, tail = model[:2], model[2:4], model[4:]
    served = serve(body)
    optimizer, losses = sgd(head, tail), []
    with served.connect() as remote:
        for x, y in batches:
            loss = F.cross_entropy(tail(remote(head(x))), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    served.join()
    expected = here(net, batches, "dense", "dense")
    assert losses == expected[0]
    assert all(torch.equal(tensor, expected[1][name]) for name, tensor in model.state_dict().items())
    counted = served.server.meter.snapshot()
    assert counted["up/labels"] == 0
    assert counted["up/gradients"] > 0


def test_what_the_client_does_to_the_loss_reaches_the_server(serve: Any, net: Any, batches: Batches) -> None:
    model = net()
    served = serve(model[2:], loss=F.cross_entropy)
    optimizer = sgd(model[:2])
    with served.connect() as remote:
        for x, y in batches:
            (remote(model[:2](x), y) * 0.25).backward()
            optimizer.step()
            optimizer.zero_grad()
    served.join()
    _, expected = here(net, batches, "dense", "dense", scale=0.25)
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-6, atol=1e-7)


def test_without_gradient_nothing_is_learned_and_eval_reaches_the_server(
    serve: Any, batches: Batches
) -> None:
    part = nn.Sequential(nn.BatchNorm1d(10), nn.Dropout(0.9), nn.Linear(10, 3))
    before = {name: tensor.clone() for name, tensor in part.state_dict().items()}
    served = serve(part, loss=F.cross_entropy)
    x, y = batches[0]
    with served.connect() as remote:
        remote.eval()
        with torch.no_grad():
            outputs, loss = remote(x), remote(x, y)
        expected = part.eval()(x).detach()
        assert torch.equal(outputs, expected)
        assert float(loss) == float(F.cross_entropy(expected, y))
        assert not outputs.requires_grad
    served.join()
    assert served.server.updates == 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in part.state_dict().items())


def test_a_head_without_weights_still_trains_the_server(serve: Any, net: Any, batches: Batches) -> None:
    part = nn.Linear(10, 3)
    before = part.weight.detach().clone()
    served = serve(part, loss=F.cross_entropy)
    with served.connect() as remote:
        remote(*batches[0]).backward()
    served.join()
    assert not torch.equal(part.weight, before)


def test_a_forward_without_backward_leaves_no_gradient(serve: Any, net: Any, batches: Batches) -> None:
    model = net()
    served = serve(model[2:], loss=F.cross_entropy)
    with served.connect() as remote:
        losses = [remote(model[:2](x), y) for x, y in batches * 2]  # more than the server keeps
        losses[-1].backward()
        for gone in (losses[0], losses[-1]):
            with pytest.raises(MessageError, match="cannot go backward"):
                gone.backward()
    served.join()
    assert served.server.updates == 1


def test_two_batches_may_be_open_while_weights_change(serve: Any, net: Any, batches: Batches) -> None:
    model = net()
    served = serve(model[2:])
    (x, y), (u, v) = batches[:2]
    with served.connect() as remote:
        first, second = remote(model[:2](x)), remote(model[:2](u))
        F.cross_entropy(first, y).backward()
        F.cross_entropy(second, v).backward()
    served.join()
    assert served.server.updates == 2


def test_a_batch_that_the_part_cannot_use_is_rejected_and_the_next_one_is_not(
    serve: Any, net: Any, batches: Batches
) -> None:
    model = net()
    served = serve(model[2:], loss=F.cross_entropy)
    x, y = batches[0]
    with served.connect() as remote:
        with pytest.raises(
            RefusedError, match=r"127\.0\.0\.1:\d+: batch 0: .*cannot use this batch \(RuntimeError"
        ):
            remote(torch.ones(4, 7), y[:4])
        with pytest.raises(RefusedError, match="IndexError"):
            remote(model[:2](x), y + 100)
        remote(model[:2](x), y).backward()
    served.join()
    assert served.server.updates == 1
    assert "client 0: the server's part cannot use this batch" in served.notes[0]


def test_a_loss_that_is_not_finite_is_rejected_and_leaves_no_trace(serve: Any, batches: Batches) -> None:
    part = nn.Sequential(nn.BatchNorm1d(10), nn.Linear(10, 3))
    before = {name: tensor.clone() for name, tensor in part.state_dict().items()}
    served = serve(part, loss=lambda outputs, targets: outputs.sum() / (targets.sum() * 0))
    with served.connect() as remote, pytest.raises(RefusedError, match="the loss is"):
        remote(batches[0][0], batches[0][1])
    served.thread.join(0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in part.state_dict().items())


def test_what_does_not_fit_the_offer_is_an_error_before_it_is_sent(serve: Any, net: Any) -> None:
    served = serve(net()[2:], shape=(16,), batch=8)
    with served.connect() as remote:
        for x, y, said in (
            (torch.ones(2, 15), None, r"takes \[samples, 16\]. Are both cut at the same place"),
            (torch.ones(9, 16), None, "8 at most"),
            (torch.ones(2, 16), torch.ones(2).long(), "has no loss"),
            (torch.ones(2, 16).long(), None, "floats"),
        ):
            with pytest.raises(InputError, match=said):
                remote(x, y)
        assert remote.meter.snapshot()["up"] == 0
    served.join()


def test_a_loop_of_the_servers_own(net: Any, batches: Batches) -> None:
    model, port, listening = net(), [], threading.Event()
    server = cutlayer.RemoteServer(
        model[2:], "127.0.0.1:0", loss=F.cross_entropy, ready=lambda p: (port.append(p), listening.set())
    )
    seen, optimizer = [], sgd(model[2:])

    def loop() -> None:
        for step in server:
            optimizer.step()
            optimizer.zero_grad()
            seen.append((step.update, step.clients, step.samples, step.loss))

    thread = threading.Thread(target=loop)
    thread.start()
    listening.wait(30)
    losses = []
    with cutlayer.connect(f"127.0.0.1:{port[0]}") as remote:
        for x, y in batches[:2]:
            loss = remote(model[:2](x), y)
            loss.backward()
            losses.append(loss.item())
    thread.join(30)
    with pytest.raises(ConfigError, match="serves once"):
        next(iter(server))
    assert seen == [(i + 1, (0,), (8,), pytest.approx(loss)) for i, loss in enumerate(losses)]


def test_half_precision_crosses_and_comes_back(serve: Any, net: Any, batches: Batches) -> None:
    model = net()
    served = serve(model[2:], loss=F.cross_entropy, autocast=torch.bfloat16)
    x = torch.randn(8, 16).bfloat16().requires_grad_()
    with served.connect() as remote:
        remote(x, batches[0][1]).backward()
    served.join()
    assert x.grad is not None
    assert x.grad.dtype == torch.bfloat16


def test_a_server_that_stays_serves_one_client_after_another(net: Any, batches: Batches) -> None:
    model, port, listening = net(), [], threading.Event()
    where = Listening("127.0.0.1:0", ready=lambda p: (port.append(p), listening.set()), metrics=Metrics())
    server = cutlayer.RemoteServer(model[2:], where, loss=F.cross_entropy, stay=True)
    seen: list[int] = []

    def loop() -> None:
        for step in server:
            seen.append(step.update)
            if step.update == 2:
                break

    thread = threading.Thread(target=loop)
    thread.start()
    listening.wait(30)
    x, y = batches[0]
    with cutlayer.connect(f"127.0.0.1:{port[0]}") as remote:
        remote(model[:2](x), y).backward()
    second = cutlayer.connect(f"127.0.0.1:{port[0]}")
    second(model[:2](x), y).backward()
    thread.join(30)
    assert not thread.is_alive()
    second._stream.close(finished=False)  # the server has gone already
    assert seen == [1, 2]
