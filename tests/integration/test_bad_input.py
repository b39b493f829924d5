"""Mistakes of people: the side that can mend it is told what is wrong and what to do. Never a traceback."""

import re
import socket

import pytest

from cutlayer.wire.security import certs, tokens

DATA = """
import torch
from cutlayer.data import Dataset

def other():
    split = Dataset(torch.rand(40, 1, 9, 9), torch.randint(3, (40,)), classes=3)
    return split, split

def rows():
    split = Dataset(torch.rand(40, 20), torch.randint(3, (40,)), classes=3)
    return split, split
"""


def fails(process, *said: str) -> None:
    assert process.wait() == 1, process.text
    assert "Traceback" not in process.text
    for words in said:
        assert words in process.text, process.text


def test_wrong_host_port_and_version_of_settings(cluster) -> None:
    join = ("--data", "digits", "--retry", "0")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        sets = ("--set", "output.tensorboard=false", "--out", "x")
        busy = cluster.nursery.start("serve", "--listen", f"127.0.0.1:{port}", *sets, cwd=cluster.folder)
        fails(busy, "in use")
    nobody = cluster.nursery.start("join", f"127.0.0.1:{port}", *join, cwd=cluster.folder)
    fails(nobody, "nobody listens there", "port")
    unknown = cluster.nursery.start("join", "no-such-host.invalid:5", "--insecure", *join, cwd=cluster.folder)
    fails(unknown, "no-such-host.invalid", "not known")
    plain = cluster.nursery.start("serve", "--listen", "0.0.0.0:0", "--out", "y", cwd=cluster.folder)
    fails(plain, "--insecure")
    far = cluster.nursery.start("join", "192.0.2.1:5", *join, cwd=cluster.folder)
    fails(far, "plain text", "--ca")
    relay = cluster.nursery.start(
        "serve", "--set", "train.mode=relay", "--straggler", "drop", "--out", "z", cwd=cluster.folder
    )
    fails(relay, "relay", "--straggler wait")
    among = ("--set", "train.aggregation=allreduce")
    drop = cluster.nursery.start("serve", *among, "--straggler", "drop", "--out", "z", cwd=cluster.folder)
    fails(drop, "allreduce", "--straggler wait")
    fails(cluster.nursery.start("aggregate", *among, cwd=cluster.folder), "need no aggregator")
    open_ = ("--allreduce-listen", "192.0.2.1")
    fails(
        cluster.nursery.start("join", "127.0.0.1:5", *join, *open_, cwd=cluster.folder), "gloo", "--insecure"
    )


def test_data_and_models_that_do_not_fit(cluster) -> None:
    (cluster.folder / "mine.py").write_text(DATA)
    server = cluster.serve()
    first = cluster.join(0)
    server.says("waiting for clients 1, 2")
    # Until most clients agree it may come again; it is told why at once.
    wrong = ("--data", "mine:other", "--as", "1", "--retry", "0")
    where = f"127.0.0.1:{cluster.port}"
    other = cluster.nursery.start("join", where, *wrong, cwd=cluster.folder, PYTHONPATH=str(cluster.folder))
    fails(other, "client 1's data do not fit", "[1, 9, 9]")
    rows = ("--data", "mine:rows", "--as", "1", "--retry", "0")
    other = cluster.nursery.start("join", where, *rows, cwd=cluster.folder, PYTHONPATH=str(cluster.folder))
    fails(other, "tiny takes images", "[20]")
    missing = cluster.nursery.start(
        "join", where, "--data", "nowhere/photos", "--as", "1", cwd=cluster.folder
    )
    fails(missing, "nowhere/photos")
    assert server.running
    assert first.running


def test_certificates_and_tokens(cluster, network) -> None:
    folder = cluster.folder / "certs"
    certs.make_ca(folder)
    certs.make_server(folder, ["localhost"])
    certs.make_ca(cluster.folder / "other")
    _, files = tokens.make(folder, ["ann", "bob", "cat"])
    flags = ("--cert", "certs/server.pem", "--key", "certs/server.key", "--tokens", "certs/tokens.txt")
    server = cluster.serve(flags=flags)

    def join(*extra: str, host: str = "localhost", ca: str = "certs", **env: str):
        where = f"{host}:{cluster.port}"
        tls = ("--ca", f"{ca}/ca.pem") if ca else ()
        args = ("--data", "digits", "--whole", "--threads", "1", "--retry", "0", *tls, *extra)
        return cluster.nursery.start("join", where, *args, cwd=cluster.folder, **env)

    fails(join(), "token")
    fails(join(CUTLAYER_TOKEN="cut_" + "A" * 43), "token")
    fails(join(CUTLAYER_TOKEN=files[0].read_text().strip(), ca="other"), "CA")
    fails(join("--token-file", "certs/ann.token", host="127.0.0.1"), "127.0.0.1")
    # A token says who one is, whatever one claims. One of them comes from the environment.
    named = [
        join("--token-file", "certs/cat.token", "--as", "0"),
        join(CUTLAYER_TOKEN=files[0].read_text().strip()),
        join("--token-file", "certs/bob.token", "--as", "0"),
    ]
    loop = cluster.train()
    assert server.wait() == 0, server.text
    assert [process.wait() for process in named] == [0, 0, 0], [process.text for process in named]
    assert "client 2 did" in named[0].text
    network.same_weights(loop, cluster.folder / "net")
    secrets = [path.read_text().strip() for path in files]
    written = [p for p in cluster.folder.rglob("*") if p.is_file() and "certs" not in p.parts]
    assert not [p for p in written for s in secrets if s.encode() in p.read_bytes()]
    assert not any(s in process.text for process in (server, *named) for s in secrets)


@pytest.mark.parametrize("full", ["records", "checkpoint", "aggregator"])
def test_a_full_disk_ends_the_server_and_clients_wait_until_there_is_room(
    cluster, network, full: str
) -> None:
    resource = pytest.importorskip("resource")
    settings = ["train.checkpoint_every=2", "train.epochs=50", "model.width=16"]
    folder, flags, victim = cluster.folder / "net" / "checkpoints", (), None
    if full == "aggregator":
        sets = [part for setting in (*network.SETTINGS, *settings) for part in ("--set", setting)]
        victim = cluster.nursery.start("aggregate", *sets, "--listen", "127.0.0.1:0", cwd=cluster.folder)
        flags = ("--aggregator", f"127.0.0.1:{victim.says(r'listening on [^ ]+:([0-9]+)')[1]}")
    server = cluster.serve(*settings, flags=flags)
    clients = [cluster.join(number) for number in range(3)]
    network.until(lambda: len(network.checkpoint.steps(folder)) > 1, "checkpoints")
    # From now on no file can grow beyond this: the nearest thing to a full disk that needs no rights. A
    # checkpoint is larger by far than the records of a few steps, and what the aggregator says.
    records = cluster.folder / "net" / "records.jsonl"
    size = {"records": records.stat().st_size, "checkpoint": 100_000, "aggregator": 5000}[full]
    limited = victim or server
    resource.prlimit(limited.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    assert server.wait() == 1, server.text
    what = {"records": "records.jsonl", "checkpoint": "net/checkpoints", "aggregator": "aggregator/step-"}[
        full
    ]
    assert re.search(rf"{what}.* cannot be written .*resume the run", server.text), server.text
    assert "Traceback" not in server.text
    assert network.checkpoint.latest(folder) is not None
    # What the operator has to do is not the clients' business, nor is where the server has its files.
    for client in clients:
        client.says("the server cannot write its files.*trying again")
        assert "net/" not in client.text
        assert "step-" not in client.text
        assert client.running
    if victim is not None:
        # It said so itself, and waits for the run to go on when there is room.
        assert "cannot be written" in victim.text
        assert victim.running
        steps = (
            network.checkpoint.latest(folder).step,
            network.checkpoint.latest(cluster.folder / "aggregator").step,
        )
        assert steps[0] <= steps[1]
        resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, 2 * (resource.RLIM_INFINITY,))
    before = len(cluster.records())
    cluster.serve(*settings, flags=(*flags, "--resume"))
    network.until(lambda: len(cluster.records()) > before + 3, "more steps")
    assert all(client.running for client in clients)
