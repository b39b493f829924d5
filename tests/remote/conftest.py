"""A server in a thread, for loops of a client's own."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import cutlayer


class Served:
    """A `RemoteServer` at work in a thread."""

    def __init__(self, part: nn.Module, **options: Any) -> None:
        port: list[int] = []
        listening = threading.Event()

        def ready(found: int) -> None:
            port.append(found)
            listening.set()

        if "optimizer" not in options:
            options["optimizer"] = torch.optim.SGD(part.parameters(), lr=0.1, momentum=0.9)
        self.notes: list[str] = []
        self.server = cutlayer.RemoteServer(
            part, "127.0.0.1:0", ready=ready, note=self.notes.append, **options
        )
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        assert listening.wait(30)
        self.address = f"127.0.0.1:{port[0]}"

    def _run(self) -> None:
        try:
            self.server.run()
        except BaseException as error:
            self.error = error

    def connect(self, **options: Any) -> cutlayer.Remote:
        return cutlayer.connect(self.address, retry=20, **options)

    def join(self) -> None:
        self.thread.join(30)
        assert not self.thread.is_alive(), "the server did not end"
        if self.error is not None:
            raise self.error


@pytest.fixture
def serve() -> Callable[..., Served]:
    return Served


@pytest.fixture
def net() -> Callable[[], nn.Sequential]:
    """A model of five layers, to be cut behind the second, and for a U-shape behind the fourth."""

    def make() -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))

    return make


@pytest.fixture
def batches() -> list[tuple[Tensor, Tensor]]:
    g = torch.Generator().manual_seed(1)
    return [(torch.randn(8, 10, generator=g), torch.randint(3, (8,), generator=g)) for _ in range(5)]
