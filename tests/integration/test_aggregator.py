"""The aggregator in a process of its own: the same bits, and the split server sees no weights."""

import json
import signal

import pytest

U = ["train.mode=u-shaped", 'model.cut=["layer1", "fc"]']


@pytest.mark.parametrize(
    "settings",
    [["codec.sync=qu:bits=8"], ["train.mode=relay", "train.sync=2"], [*U, "train.sync=3"]],
    ids=["parallel", "relay", "u-shaped"],
)
def test_the_split_server_never_sees_what_clients_share(cluster, network, settings: list[str]) -> None:
    settings = [*settings, "train.checkpoint_every=4", "train.epochs=3"]
    flat = [part for setting in (*network.SETTINGS, *settings) for part in ("--set", setting)]
    log = ("--log", "aggregator.jsonl")
    aggregator = cluster.nursery.start(
        "aggregate", *flat, "--listen", "127.0.0.1:0", *log, cwd=cluster.folder
    )
    port = aggregator.says(r"listening on \S+:(\d+)")[1]
    flags = ("--aggregator", f"127.0.0.1:{port}", "--log", "server.jsonl")
    server = cluster.serve(*settings, flags=flags)
    dies = settings[0].startswith("codec")
    clients = [cluster.join(0), (cluster.join_slowly if dies else cluster.join)(1), cluster.join(2)]
    if dies:
        network.until(lambda: len(cluster.records()) > 6, "a few steps")
        clients[1].kill()
        clients[1] = cluster.join(1)
    loop = cluster.train(*settings)
    assert server.wait() == 0, server.text
    assert [client.wait() for client in clients] == [0, 0, 0], [client.text for client in clients]
    aggregator.send(signal.SIGINT)
    assert aggregator.wait() == 0, aggregator.text
    losses = [
        [r["loss"] for r in network.plain(d) if r["kind"] == "step"] for d in (cluster.folder / "net", loop)
    ]
    assert losses[0] == losses[1]
    scores = [
        [r["test_loss"] for r in network.plain(d) if r["kind"] == "epoch"]
        for d in (cluster.folder / "net", loop)
    ]
    assert scores[0] == scores[1]
    # What each process has seen.
    seen = {name: received(cluster.folder / f"{name}.jsonl") for name in ("server", "aggregator")}
    assert seen["server"].isdisjoint({"SyncUp", "State"})
    assert {"Smashed", "Placeholder", "Report"} <= seen["server"]
    assert seen["aggregator"] == {"SyncUp", "State"}
    kept = network.checkpoint.latest(cluster.folder / "net" / "checkpoints")
    assert all(name.startswith("server.") for name in kept.tensors)
    theirs = network.checkpoint.latest(cluster.folder / "aggregator")
    ours = network.checkpoint.latest(loop / "checkpoints")
    for name, tensor in ours.tensors.items():
        if name.startswith("client.0.model"):
            assert theirs.tensors[name].equal(tensor), name


def received(path) -> set[str]:
    events = [json.loads(line) for line in path.read_text().splitlines()]
    (last,) = [e for e in events if e["event"] == "server-stopped"]
    return set(last["received"])
