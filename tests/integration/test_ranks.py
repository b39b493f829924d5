"""A server of several ranks gives the run of one process: weights, records, and after a rank has died."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import torch

from cutlayer.training import checkpoint


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Ranks:
    """The processes that torchrun would start, with the environment that it would give them."""

    def __init__(self, cluster: Any, network: Any, world: int = 2) -> None:
        self.cluster, self.network, self.world = cluster, network, world
        self.base = free_port()
        self.restarts = 0
        self.processes: list[Any] = []

    def serve(self, *settings: str, flags: tuple[str, ...] = (), out: str = "net") -> None:
        given = [part for setting in (*self.network.SETTINGS, *settings) for part in ("--set", setting)]
        port = free_port()
        self.processes = [
            self.cluster.nursery.start(
                *("serve", *given, "--out", out, "--listen", f"127.0.0.1:{self.base}", "--threads", "1", *flags),
                cwd=self.cluster.folder,
                RANK=str(rank),
                WORLD_SIZE=str(self.world),
                LOCAL_RANK=str(rank),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
                TORCHELASTIC_RUN_ID="test",
                TORCHELASTIC_RESTART_COUNT=str(self.restarts),
            )
            for rank in range(self.world)
        ]

    def join(self, clients: int) -> list[Any]:
        """Every client calls the second rank, whoever's it is."""
        return [self.cluster.join(client, port=self.base + 1) for client in range(clients)]

    def wait(self) -> None:
        for process in self.processes:
            assert process.wait() == 0, "\n".join(p.text for p in self.processes)


@pytest.fixture
def ranks(cluster: Any, network: Any) -> Ranks:
    return Ranks(cluster, network)


FOUR = ("train.clients=4", "train.epochs=1")


def test_exact_ranks_give_the_bits_and_records_of_one_process(ranks: Ranks, cluster: Any, network: Any) -> None:
    settings = (*FOUR, "codec.sync=qu:bits=8")
    ranks.serve(*settings, flags=("--exact",))
    clients = ranks.join(4)
    ranks.wait()
    for client in clients:
        assert client.wait() == 0, client.text
    loop = cluster.train(*settings)
    network.same_weights(loop, cluster.folder / "net")
    assert network.plain(cluster.folder / "net") == network.plain(loop)
