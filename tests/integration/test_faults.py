"""Clients and servers that die, freeze and come back: nothing is lost."""

import json
import signal
import time

import pytest

LONG = ["train.epochs=12", "train.checkpoint_every=4"]


def test_a_run_in_which_everybody_dies_once_ends_as_if_nothing_had_happened(cluster, network) -> None:
    server = cluster.serve(*LONG)
    clients = [cluster.join(0), cluster.join_slowly(1), cluster.join(2)]

    def steps(n: int) -> None:
        network.until(lambda: len(cluster.records()) > n, f"step {n}")

    steps(6)
    clients[0].kill()
    clients[0] = cluster.join(0)
    server.says("going back to step")
    steps(14)
    server.kill()
    server = cluster.serve(*LONG, flags=("--resume",))
    clients[2].says("takes part from step [1-9]")
    clients[2].send(signal.SIGSTOP)
    time.sleep(0.2)
    clients[2].send(signal.SIGCONT)
    clients[1].kill()
    clients[1] = cluster.join(1)
    loop = cluster.train(*LONG)
    assert server.wait() == 0, server.text
    assert [client.wait() for client in clients] == [0, 0, 0], [client.text for client in clients]
    assert network.plain(cluster.folder / "net") == network.plain(loop)
    network.same_weights(loop, cluster.folder / "net")


def test_ctrl_c_on_either_side_ends_cleanly_and_the_run_can_go_on(cluster, network) -> None:
    server = cluster.serve(*LONG)
    clients = [cluster.join(0), cluster.join(1), cluster.join_slowly(2)]
    network.until(lambda: len(cluster.records()) > 3, "a few steps")
    clients[2].send(signal.SIGINT)
    assert clients[2].wait() == 130
    clients[2] = cluster.join_slowly(2)
    network.until(lambda: len(cluster.records()) > 9, "a few steps more")
    server.send(signal.SIGINT)
    assert server.wait() == 130, server.text
    assert "to continue: cutlayer serve --resume" in server.text
    assert "Traceback" not in server.text
    done = len([r for r in cluster.records() if r["kind"] == "step"])
    assert network.checkpoint.latest(cluster.folder / "net" / "checkpoints").step == done
    # While it tries to reach the server again it can be stopped, too.
    clients[2].send(signal.SIGINT)
    assert clients[2].wait() == 130
    clients[2] = cluster.join(2)
    server = cluster.serve(*LONG, flags=("--resume",))
    loop = cluster.train(*LONG)
    assert server.wait() == 0, server.text
    assert [client.wait() for client in clients] == [0, 0, 0], [client.text for client in clients]
    network.same_weights(loop, cluster.folder / "net")


@pytest.mark.parametrize("mode", ["parallel", "u-shaped"])
def test_a_step_goes_on_without_clients_that_vanish(cluster, network, mode: str) -> None:
    cut = ['model.cut=["layer1", "fc"]'] if mode == "u-shaped" else []
    # More epochs than it is given time for.
    settings = ["train.epochs=5000", f"train.mode={mode}", *cut]
    # Long enough that a busy machine is not taken for a dead one.
    flags = ("--straggler", "drop", "--deadline", "4", "--quorum", "2")
    server = cluster.serve(*settings, flags=flags)
    clients = [cluster.join(number) for number in range(3)]

    def taking_part() -> list[int]:
        return [r["clients"] for r in cluster.records() if r["kind"] == "step"]

    network.until(lambda: len(taking_part()) > 3, "a few steps")
    clients[1].kill()
    network.until(lambda: taking_part()[-1] == 2, "a step of two")
    clients[1] = cluster.join(1)
    server.says(r"client 1 is back")
    before = len(taking_part())
    network.until(lambda: 3 in taking_part()[before:], "a step of three again")
    clients[2].send(signal.SIGSTOP)
    network.until(lambda: taking_part()[-1] == 2, "a step of two again")
    clients[2].send(signal.SIGCONT)
    server.says(r"client 2 is back")
    before = len(taking_part())
    network.until(lambda: 3 in taking_part()[before:], "a step of three at the end")

    def losses() -> list[float]:
        return [r["train_loss"] for r in cluster.records() if r["kind"] == "epoch"]

    # Who is in which step depends on the machine, and so do losses; but the run goes on learning.
    network.until(lambda: bool(losses()) and min(losses()) < 0.85 * losses()[0], "a loss that falls")
    server.send(signal.SIGINT)
    assert server.wait() == 130, server.text
    assert all(client.running for client in clients)


@pytest.mark.parametrize("settings", [(), ("train.sync=epoch",)], ids=["step", "epoch"])
def test_the_rest_keep_training_if_the_one_with_most_data_never_comes_back(
    cluster, network, settings: tuple[str, ...]
) -> None:
    flags = ("--straggler", "drop", "--deadline", "4", "--quorum", "2")
    server = cluster.serve("train.epochs=6", *settings, flags=flags)
    clients = [cluster.join(0), cluster.join_slowly(1), cluster.join(2)]
    network.until(lambda: len(cluster.records()) > 3, "a few steps")
    clients[1].kill()
    assert server.wait() == 0, server.text
    assert [clients[n].wait() for n in (0, 2)] == [0, 0], [client.text for client in clients]
    records = cluster.records()
    assert "going back" not in server.text
    # Its batches are the last of every epoch, where nobody else has any.
    steps = [r["step"] for r in records if r["kind"] == "step" and r["epoch"] == 6]
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) < json.loads((cluster.folder / "net" / "data.json").read_text())["samples"][1] / 8
    assert [r["epoch"] for r in records if r["kind"] == "epoch"] == [1, 2, 3, 4, 5, 6]
