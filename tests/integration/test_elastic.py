"""Clients that join and leave a run while it goes on, with nothing but a token."""

import json
from pathlib import Path
from typing import Any

from cutlayer.protocol.client_sampling import sample_clients
from cutlayer.wire.security import tokens

FLAGS = ("--straggler", "drop", "--deadline", "3", "--quorum", "2", "--elastic", "--tokens", "tokens.txt")
MANY = ("train.clients=8", "train.clients_per_step=2", "train.epochs=40", "data.partition=even")
ROUND = ("train.epochs=1", "train.batch_size=2", "data.partition=even")


def join(cluster: Any, name: str, *flags: str) -> Any:
    args = ("--data", "digits", "--whole", "--threads", "1", "--token-file", f"{name}.token", *flags)
    return cluster.nursery.start("join", f"127.0.0.1:{cluster.port}", *args, cwd=cluster.folder)


def places(folder: Path) -> list[str]:
    return json.loads((folder / "net" / "clients.json").read_text())


def test_a_token_is_enough_to_join_and_nobody_is_missed(cluster, network) -> None:
    tokens.make(cluster.folder, ["ann", "bob"])
    server = cluster.serve(*MANY, flags=FLAGS)
    ann = join(cluster, "ann")
    server.says("1 clients of at least 2 are there")
    bob = join(cluster, "bob", "--link", "1gbit,20ms")
    network.until(lambda: len(cluster.records()) > 2, "steps")
    # Made while the run goes on; the server is not told but by its file.
    tokens.make(cluster.folder, ["cat"])
    cat = join(cluster, "cat", "--link", "1gbit,20ms")
    cat.says("client 2 takes part from step [1-9]")
    ann.kill()
    step = len(cluster.records())
    network.until(lambda: len(cluster.records()) > step + 5, "steps without the first")
    assert places(cluster.folder) == ["ann", "bob", "cat"]
    assert {record["clients"] for record in cluster.records()[step + 1 :] if "clients" in record} == {2}
    # And after a restart everybody has the place that it had, whoever comes first.
    server.kill()
    tokens.make(cluster.folder, ["abe"])
    server = cluster.serve(*MANY, flags=(*FLAGS, "--resume"))
    network.until(lambda: len(cluster.records()) > step + 10, "steps after the restart")
    abe = join(cluster, "abe")
    abe.says("client 3 takes part")
    assert places(cluster.folder)[:3] == ["ann", "bob", "cat"]
    # Without its quorum the run waits, and loses nothing.
    for client in (abe, bob):
        client.kill()
    server.says("waiting for the quorum of 2")
    step = len(cluster.records())
    join(cluster, "ann").says("client 0 takes part")
    network.until(lambda: len(cluster.records()) > step + 3, "steps with the quorum")
    assert "going back" not in server.text
    assert cat.running


def test_an_elastic_run_needs_settings_that_let_clients_go(cluster) -> None:
    for flags, settings, said in (
        (("--elastic",), MANY, "use --straggler drop"),
        (("--elastic", "--straggler", "drop"), MANY[:1], "set train.clients_per_step"),
        (("--aggregator", "127.0.0.1:1"), MANY, "leave out --aggregator"),
    ):
        sets = [part for setting in settings for part in ("--set", setting)]
        server = cluster.nursery.start("serve", *sets, *flags, "--listen", "127.0.0.1:0", cwd=cluster.folder)
        assert server.wait() == 1, server.text
        assert said in " ".join(server.text.split())
        assert "Traceback" not in server.text


def test_a_killed_client_changes_nothing_and_one_that_was_not_drawn_takes_nobody_back(
    cluster, network
) -> None:
    # One round, of many steps.
    settings = (*ROUND, "train.clients_per_step=2", "train.sync=epoch", "train.checkpoint_every=2", "seed=3")
    drawn = sample_clients(3, 0, range(3), 2)
    (idle,) = {0, 1, 2} - set(drawn)
    server = cluster.serve(*settings)
    clients = {c: cluster.join_slowly(c) if c == drawn[0] else cluster.join(c) for c in range(3)}
    network.until(lambda: len(cluster.records()) > 1, "steps")
    clients[idle].kill()
    cluster.join(idle).says("takes part from step [1-9]")
    assert "going back" not in server.text
    clients[drawn[0]].kill()
    cluster.join(drawn[0])
    loop = cluster.train(*settings)
    assert server.wait() == 0, server.text
    assert f"client {drawn[0]} came back without its state; going back to step" in server.text
    assert network.plain(cluster.folder / "net") == network.plain(loop)
    network.same_weights(loop, cluster.folder / "net")
