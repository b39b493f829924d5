"""A server of several ranks gives the run of one process: weights, records, and after a rank has died."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cutlayer.training import checkpoint
from tests.ports import free_port


class Ranks:
    """The processes that torchrun would start, with the environment that it would give them."""

    def __init__(self, cluster: Any, network: Any, world: int = 2) -> None:
        self.cluster, self.network, self.world = cluster, network, world
        self.ports = [free_port() for _ in range(world)]
        self.restarts = 0
        self.processes: list[Any] = []

    def serve(
        self,
        *settings: str,
        flags: tuple[str, ...] = (),
        each: Callable[[int], tuple[str, ...]] = lambda rank: (),
    ) -> None:
        given = [part for setting in (*self.network.SETTINGS, *settings) for part in ("--set", setting)]
        port = free_port()
        listen = ",".join(f"127.0.0.1:{one}" for one in self.ports)
        place = ("--out", "net", "--listen", listen, "--threads", "1")
        self.processes = [
            self.cluster.nursery.start(
                *("serve", *given, *place, *flags, *each(rank)),
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

    def serve_alone(self, *settings: str) -> Any:
        """One process goes on with the run, at the address of the second rank."""
        given = [part for setting in (*self.network.SETTINGS, *settings) for part in ("--set", setting)]
        place = ("--out", "net", "--listen", f"127.0.0.1:{self.ports[1]}", "--threads", "1", "--resume")
        return self.cluster.nursery.start("serve", *given, *place, cwd=self.cluster.folder)

    def join(self, client: int | None, *flags: str) -> Any:
        """Every client calls the second rank, whoever's it is."""
        where = f"127.0.0.1:{self.ports[1]}"
        number = () if client is None else ("--as", str(client))
        args = ("--data", "digits", "--whole", "--threads", "1", *number, *flags)
        return self.cluster.nursery.start("join", where, *args, cwd=self.cluster.folder)

    def wait(self) -> None:
        for process in self.processes:
            assert process.wait() == 0, "\n".join(p.text for p in self.processes)


@pytest.fixture
def ranks(cluster: Any, network: Any) -> Ranks:
    return Ranks(cluster, network)


THREE = ("train.clients=3", "train.epochs=1")


def steps(cluster: Any) -> int:
    return sum(record["kind"] == "step" for record in cluster.records())


def close(one: Path, other: Path, most: float) -> None:
    """Assert that two runs ended alike, but for rounding, and sent the same bytes."""
    found, expected = (checkpoint.latest(directory / "checkpoints") for directory in (one, other))
    assert found is not None
    assert expected is not None
    assert found.step == expected.step
    assert found.tensors.keys() == expected.tensors.keys()
    assert found.state["session"]["meter"] == expected.state["session"]["meter"]
    for name, tensor in expected.tensors.items():
        apart = torch.linalg.vector_norm((found.tensors[name] - tensor).double())
        assert apart <= most * torch.linalg.vector_norm(tensor.double()), name


def test_exact_ranks_that_are_killed_and_replaced_give_the_bits_and_records_of_one_process(
    ranks: Ranks, cluster: Any, network: Any
) -> None:
    settings = ("train.clients=4", "train.checkpoint_every=4", "codec.sync=qu:bits=8")
    ranks.serve(*settings, flags=("--exact",))
    clients = [ranks.join(0, "--link", "1gbit,50ms"), *(ranks.join(client) for client in (1, 2, 3))]
    network.until(lambda: steps(cluster) >= 1, "a step")
    # Before there is a checkpoint: nothing of what was sent counts.
    clients[3].kill()
    clients[3] = ranks.join(3)
    ranks.processes[0].says("came back without its state; going back to step 0")
    network.until(lambda: steps(cluster) > 5, "a checkpoint and a step more")
    ranks.processes[1].kill()
    assert ranks.processes[0].wait() == 1
    assert "another rank of the server is gone" in ranks.processes[0].text
    # One process goes on, where all clients call; and then two ranks again.
    # Clients of the first rank were sent to an address that nobody listens at any more.
    alone = ranks.serve_alone(*settings)
    begun = steps(cluster)
    network.until(lambda: steps(cluster) > begun + 2, "two steps of one process")
    alone.kill()
    ranks.restarts = 1
    ranks.ports[0] = free_port()
    ranks.serve(*settings, flags=("--exact",))
    clients[0].kill()
    clients[0] = ranks.join(0)
    ranks.wait()
    for client in clients:
        assert client.wait() == 0, client.text
    loop = cluster.train(*settings)
    network.same_weights(loop, cluster.folder / "net")
    assert network.plain(cluster.folder / "net") == network.plain(loop)


def test_ranks_agree_with_one_process(ranks: Ranks, cluster: Any, network: Any) -> None:
    settings = (*THREE, "codec.up=none", "train.weighting=samples")
    ranks.serve(*settings)
    # Without a number each takes a place that is free, at the rank that has one.
    clients = [ranks.join(None) for _ in range(3)]
    ranks.wait()
    for client in clients:
        assert client.wait() == 0, client.text
    loop = cluster.train(*settings)
    close(cluster.folder / "net", loop, 1e-6)


def test_a_u_shape_with_weights_that_are_averaged_now_and_then(
    ranks: Ranks, cluster: Any, network: Any
) -> None:
    settings = (*THREE, "train.mode=u-shaped", 'model.cut=["layer1","avgpool"]', "train.sync=3")
    ranks.serve(*settings, flags=("--exact",))
    clients = [ranks.join(client) for client in range(3)]
    ranks.wait()
    for client in clients:
        assert client.wait() == 0, client.text
    loop = cluster.train(*settings)
    network.same_weights(loop, cluster.folder / "net")
    assert network.plain(cluster.folder / "net") == network.plain(loop)


def test_a_sharded_half_and_a_checkpoint_that_one_process_continues(
    ranks: Ranks, cluster: Any, network: Any
) -> None:
    # Three clients: the rank that has one of them makes up for it with blank batches.
    settings = ("codec.up=none", "train.schedule=constant", "train.clip_gradient=1.0")
    ranks.serve(*settings, "train.epochs=1", "train.shard_server=true")
    clients = [ranks.join(client) for client in range(3)]
    ranks.wait()
    for client in clients:
        assert client.wait() == 0, client.text
    loop = cluster.train(*settings, "train.epochs=1")
    close(cluster.folder / "net", loop, 1e-5)
    more = ("train", "--resume", "--out", "net", "--epochs", "2", "--threads", "1")
    continued = cluster.nursery.start(*more, cwd=cluster.folder)
    assert continued.wait() == 0, continued.text
    assert cluster.records()[-1]["epoch"] == 2


def test_ranks_with_different_settings_say_so(ranks: Ranks) -> None:
    ranks.serve("train.lr=0.1", each=lambda rank: ("--set", f"seed={rank}"))
    for process in ranks.processes:
        assert process.wait() == 1
        assert "ranks differ in settings" in process.text
        assert "start every rank with the same configuration" in process.text
