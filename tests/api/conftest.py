"""A small problem, as objects, and a run over the network."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import cutlayer
from cutlayer.wire.grpc.server import Listening


@pytest.fixture
def problem() -> dict[str, Any]:
    """Two classes of points, for `cutlayer.train`."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(120, 6, generator=g)
    y = (x.sum(1) > 0).long()
    return {
        "at": "1",
        "train": (x[:96], y[:96]),
        "test": (x[96:], y[96:]),
        "clients": 2,
        "batch_size": 8,
        "codec": "qu:bits=6",
        "epochs": 2,
        "lr": 0.1,
    }


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.Dropout(0.1), nn.Linear(8, 2))


@pytest.fixture
def over_network(tmp_path: Path) -> Callable[..., cutlayer.Result]:
    """`cutlayer.train` with a server and clients that talk gRPC, in threads of this process."""

    def run(model: nn.Module, *, train: Any, test: Any, clients: int, **settings: Any) -> cutlayer.Result:
        port: queue.Queue[int] = queue.Queue()
        where = {"listening": Listening("127.0.0.1:0", ready=port.put), "out": tmp_path / "served"}
        server = _started(cutlayer.serve, model, clients=clients, **where, **settings)
        address = f"127.0.0.1:{port.get(timeout=60)}"
        joined = [
            _started(cutlayer.join, address, train, test, model=model, whole=True, client=number, retry=30)
            for number in range(clients)
        ]
        for client in joined:
            client.result(60)
        return server.result(60)

    return run


def _started(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
    """A call in a thread that the end of the tests does not wait for."""
    found: Future[Any] = Future()

    def call() -> None:
        try:
            found.set_result(function(*args, **kwargs))
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return found
