"""Several clients: one update for all of them does not depend on who was faster; one each, on the order."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

Batches = list[tuple[Tensor, Tensor]]


def loops(
    served: Any, heads: list[nn.Module], batches: Batches, pauses: list[float], at_client: bool = False
) -> list[list[float]]:
    """Each client's loop in a thread, with a pause before each of its steps; their losses."""
    losses: list[list[float]] = [[] for _ in heads]
    errors: list[BaseException] = []

    def loop(client: int) -> None:
        try:
            optimizer = torch.optim.SGD(heads[client].parameters(), lr=0.1)
            with served.connect(client=client) as remote:
                for x, y in batches[client::2]:
                    time.sleep(pauses[client])
                    smashed = heads[client](x)
                    loss = F.cross_entropy(remote(smashed), y) if at_client else remote(smashed, y)
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    losses[client].append(loss.item())
                remote.eval()
                with torch.no_grad():
                    losses[client].append(float(remote(heads[client](batches[0][0]), batches[0][1])))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=loop, args=(client,)) for client in range(len(heads))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    served.join()
    if errors:
        raise errors[0]
    return losses


@pytest.mark.parametrize("at_client", [False, True], ids=["loss-at-server", "u-shaped"])
def test_all_clients_together_do_not_depend_on_who_is_faster(
    serve: Any, net: Callable[[], nn.Sequential], batches: Batches, at_client: bool
) -> None:
    def run(pauses: list[float]) -> tuple[list[list[float]], dict[str, Tensor]]:
        model = net()
        body = nn.Sequential(nn.BatchNorm1d(16), nn.Dropout(0.3), *model[2:])
        served = serve(body, loss=F.cross_entropy, clients=2, update="all")
        heads: list[nn.Module] = [net()[:2], net()[:2]]
        return loops(served, heads, batches, pauses, at_client), body.state_dict()

    first, second = run([0.0, 0.02]), run([0.02, 0.0])
    assert first[0] == second[0]
    assert all(torch.equal(tensor, second[1][name]) for name, tensor in first[1].items())


def test_all_clients_together_are_the_mean(serve: Any, net: Any, batches: Batches) -> None:
    model = net()
    served = serve(model[2:], loss=F.cross_entropy, clients=2, update="all")
    heads = [net()[:2], net()[:2]]
    loops(served, heads, batches[:2], [0.0, 0.0])
    expected = net()
    optimizer = torch.optim.SGD(expected[2:].parameters(), lr=0.1, momentum=0.9)
    for x, y in batches[:2]:
        (F.cross_entropy(expected(x), y) / 2).backward()
    optimizer.step()
    for name, tensor in model[2:].state_dict().items():
        torch.testing.assert_close(tensor, expected[2:].state_dict()[name], rtol=1e-6, atol=1e-7)
    assert served.server.updates == 1


def test_a_client_that_is_done_is_not_waited_for(serve: Any, net: Any, batches: Batches) -> None:
    served = serve(net()[2:], loss=F.cross_entropy, clients=2, update="all")
    losses = loops(served, [net()[:2], net()[:2]], batches[:3], [0.0, 0.0])
    assert [len(found) for found in losses] == [3, 2]  # two steps and one, and an evaluation each
    assert served.server.updates == 2


def test_each_batch_alone(serve: Any, net: Any, batches: Batches) -> None:
    served = serve(net()[2:], loss=F.cross_entropy, clients=2)
    losses = loops(served, [net()[:2], net()[:2]], batches, [0.0, 0.0])
    assert served.server.updates == len(batches)
    assert [len(found) for found in losses] == [4, 3]
    assert set(served.server.meter.by_client()) == {0, 1}
