"""Mode async with real processes: a client and the server die, and every batch is still given once."""

from cutlayer.training import checkpoint
from cutlayer.training.load_run import open_run

ASYNC = ["train.mode=async", "train.buffer=2", "train.checkpoint_every=2", "train.epochs=4"]


def test_deaths_of_a_client_and_of_the_server_lose_no_batch(cluster, network) -> None:
    flags = ("--straggler", "drop", "--deadline", "60")
    server = cluster.serve(*ASYNC, flags=flags)
    clients = [cluster.join_slowly(number) for number in range(3)]
    network.until(lambda: len(cluster.records()) > 4, "steps")
    clients[1].kill()
    clients[1] = cluster.join(1)
    server.says("client 1 is back at step")
    # The one that was killed is now much faster than the others.
    network.until(
        lambda: any(max(r.get("staleness", [0])) > 1 for r in cluster.records()), "a stale gradient"
    )
    server.kill()
    # All have to be there before it goes on, or those who are late would find that it is over.
    server = cluster.serve(*ASYNC, flags=(*flags, "--resume", "--quorum", "3"))
    assert server.wait() == 0, server.text
    assert [client.wait() for client in clients] == [0, 0, 0], [client.text for client in clients]
    steps = [r for r in cluster.records() if r["kind"] == "step"]
    assert [r["global_step"] for r in steps] == list(range(1, len(steps) + 1))
    assert all(r["clients"] == 2 and len(r["staleness"]) == 2 for r in steps)
    last = checkpoint.latest(cluster.folder / "net" / "checkpoints")
    assert last is not None
    assert last.step == len(steps)
    # Whatever was given has arrived, is on its way, or was too old.
    held = last.state["session"]["asynchronous"]
    arrived = 2 * len(steps) + sum(r["discarded"] for r in steps)
    assert sum(held["given"]) == arrived + len(held["flying"])
    # A run over the network is a run: it can be opened without its data.
    assert open_run(cluster.folder / "net").step == len(steps)
