"""Clients that average among themselves: the server's means, and nothing of what they share at the server."""

import json

import pytest

U = ["train.mode=u-shaped", 'model.cut=["layer1", "fc"]']
ALLGATHER = "train.aggregation=allgather"


@pytest.mark.parametrize(
    "settings",
    [
        ["codec.sync=qu:bits=8", "codec.feedback=false"],
        [*U, "train.sync=3"],
        ["train.mode=sequential", "train.sync=epoch"],
    ],
    ids=["parallel", "u-shaped", "sequential"],
)
def test_clients_average_among_themselves(cluster, network, settings: list[str]) -> None:
    server = cluster.serve(*settings, ALLGATHER, flags=("--log", "server.jsonl"))
    clients = [cluster.join(number) for number in range(3)]
    loop = cluster.train(*settings)
    assert server.wait() == 0, server.text
    assert [client.wait() for client in clients] == [0, 0, 0], [client.text for client in clients]
    net = cluster.folder / "net"
    for kind, name in (("step", "loss"), ("epoch", "test_loss")):
        ours, theirs = ([r[name] for r in network.plain(d) if r["kind"] == kind] for d in (net, loop))
        assert ours == theirs
        assert ours
    network.same_weights(net, loop)
    # In one process the same steps share something; here the server counts nothing of it, either way.
    assert shared(network.plain(loop)) > 0
    assert shared(network.plain(net)) == 0
    events = [json.loads(line) for line in (cluster.folder / "server.jsonl").read_text().splitlines()]
    (last,) = [e for e in events if e["event"] == "server-stopped"]
    assert "SyncUp" not in last["received"]
    assert {"Smashed", "Placeholder", "Report"} <= set(last["received"])


def test_a_client_that_dies_is_replaced_and_the_run_goes_back(cluster, network) -> None:
    settings = ["train.checkpoint_every=4", "train.epochs=3"]
    server = cluster.serve(*settings, ALLGATHER)
    clients = [cluster.join_slowly(0), cluster.join(1), cluster.join(2)]
    network.until(lambda: len(cluster.records()) > 5, "a few steps")
    # The one at whose place all met.
    clients[0].kill()
    clients[0] = cluster.join(0)
    loop = cluster.train(*settings)
    assert server.wait() == 0, server.text
    assert [client.wait() for client in clients] == [0, 0, 0], [client.text for client in clients]
    assert "going back to step" in server.text
    network.same_weights(cluster.folder / "net", loop)


def test_an_all_reduce_agrees_to_rounding(cluster, network) -> None:
    server = cluster.serve("train.aggregation=allreduce", flags=("--log", "server.jsonl"))
    clients = [cluster.join(number) for number in range(3)]
    loop = cluster.train()
    assert server.wait() == 0, server.text
    assert [client.wait() for client in clients] == [0, 0, 0], [client.text for client in clients]
    ours, theirs = (
        [r["loss"] for r in network.plain(d) if r["kind"] == "step"] for d in (cluster.folder / "net", loop)
    )
    assert ours == pytest.approx(theirs, rel=1e-4)
    events = [json.loads(line) for line in (cluster.folder / "server.jsonl").read_text().splitlines()]
    (last,) = [e for e in events if e["event"] == "server-stopped"]
    assert "SyncUp" not in last["received"]


def shared(records: list[dict]) -> int:
    steps = [r["bytes"] for r in records if r["kind"] == "step"]
    return sum(n for step in steps for key, n in step.items() if key.endswith("/sync"))
