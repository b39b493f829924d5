"""Server, aggregator and clients that know each other by certificates alone, watched from outside."""

import signal
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cutlayer.server.timeline import STAGES
from cutlayer.wire.meter import Direction, Kind
from cutlayer.wire.security import certs, tokens

NAMES = ("ann", "bob", "cat")


@pytest.fixture
def folder(cluster) -> Path:
    """A CA, the server's certificate, and one for each who connects."""
    found = cluster.folder / "certs"
    certs.make_ca(found)
    certs.make_server(found, ["localhost"])
    for name in (*NAMES, "dan", "split-server"):
        certs.make_client(found, name)
    return found


def mutual(*more: str) -> tuple[str, ...]:
    server = ("--cert", "certs/server.pem", "--key", "certs/server.key")
    return (*server, "--client-ca", "certs/ca.pem", "--names", ",".join(NAMES), *more)


def aggregator_at(port: str, name: str = "split-server") -> tuple[str, ...]:
    pair = ("--aggregator-cert", f"certs/{name}.pem", "--aggregator-key", f"certs/{name}.key")
    return ("--aggregator", f"localhost:{port}", "--aggregator-ca", "certs/ca.pem", *pair)


def start_aggregator(cluster: Any, network: Any, *flags: str) -> tuple[Any, str]:
    sets = [part for setting in network.SETTINGS for part in ("--set", setting)]
    started = cluster.nursery.start("aggregate", *sets, "--listen", "127.0.0.1:0", *flags, cwd=cluster.folder)
    return started, started.says(r"listening on \S+:(\d+)")[1]


def join(cluster: Any, name: str, *flags: str) -> Any:
    who = ("--ca", "certs/ca.pem", "--cert", f"certs/{name}.pem", "--key", f"certs/{name}.key")
    args = ("--data", "digits", "--whole", "--threads", "1", *who, *flags)
    return cluster.nursery.start("join", f"localhost:{cluster.port}", *args, cwd=cluster.folder)


def refused(process: Any, *said: str) -> None:
    assert process.wait() == 1, process.text
    assert "Traceback" not in process.text
    for words in said:
        assert words in process.text, process.text


def scrape(address: str) -> dict[str, float]:
    with urllib.request.urlopen(address, timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in (x.rsplit(" ", 1) for x in lines if x[0] != "#")}


def health(port: int, folder: Path, name: str) -> int:
    parts = [(folder / file).read_bytes() for file in ("ca.pem", f"{name}.key", f"{name}.pem")]
    with grpc.secure_channel(f"localhost:{port}", grpc.ssl_channel_credentials(*parts)) as channel:
        asked = health_pb2.HealthCheckRequest(service="cutlayer.v1.Training")
        return health_pb2_grpc.HealthStub(channel).Check(asked, timeout=60).status


def test_certificates_are_enough_for_all_three_roles(cluster, network, folder: Path) -> None:
    _, port = start_aggregator(cluster, network, *mutual())
    server = cluster.serve(flags=mutual(*aggregator_at(port), "--metrics", "0"))
    metrics = server.says(r"http://\S+/metrics")[0]
    assert health(cluster.port, folder, "ann") == health_pb2.HealthCheckResponse.SERVING
    refused(join(cluster, "dan", "--retry", "0"), "'dan' is not among the clients of this run")
    clients = [join(cluster, name) for name in reversed(NAMES)]
    network.until(lambda: len(cluster.records()) > 2, "steps")
    # Nobody can take a step while one is frozen: what a scrape tells does not change meanwhile.
    clients[0].send(signal.SIGSTOP)
    found = scrape(metrics)
    clients[0].send(signal.SIGCONT)
    assert found["cutlayer_steps_total"] >= 2
    assert found["cutlayer_connected_clients"] == 3
    assert 'cutlayer_queue_depth{queue="inbox"}' in found
    assert found['cutlayer_refusals_total{reason="hello"}'] == 1
    for stage in STAGES:
        assert found[f'cutlayer_stage_seconds_total{{stage="{stage}"}}'] >= 0
    counted = {
        (d, k): found[f'cutlayer_bytes_total{{direction="{d}",kind="{k}"}}'] for d in Direction for k in Kind
    }
    assert min(counted["up", "smashed"], counted["up", "labels"], counted["down", "gradients"]) > 0
    # What clients share goes to the aggregator.
    assert counted["up", "sync"] == counted["down", "sync"] == 0
    loop = cluster.train()
    assert server.wait() == 0, server.text
    assert [client.wait() for client in clients] == [0, 0, 0], [client.text for client in clients]
    assert "client 2 did" in clients[0].text
    ours, theirs = (
        [r["loss"] for r in network.plain(d) if r["kind"] == "step"] for d in (cluster.folder / "net", loop)
    )
    assert ours == theirs


def test_who_may_not_give_the_aggregator_orders(cluster, network, folder: Path) -> None:
    one = ("--set", "train.clients=1", "--set", "data.partition=even")
    aggregator, port = start_aggregator(cluster, network, *one, *mutual(), "--names", "ann")

    def serve(*flags: str, settings: tuple[str, ...] = (), out: str) -> tuple[Any, Any]:
        settings = ("train.clients=1", "data.partition=even", *settings)
        server = cluster.serve(*settings, out=out, flags=flags)
        return server, cluster.join(0)

    certs.make_ca(cluster.folder / "other")
    foreign = ("--aggregator", f"localhost:{port}", "--aggregator-ca", "other/ca.pem")
    refused(serve(*foreign, out="a")[0], "the aggregator", "not from the CA")
    cluster.port = 0
    not_me = aggregator_at(port, "ann")
    refused(serve(*not_me, out="b")[0], "the aggregator", "only the split server gives orders")
    cluster.port = 0
    server, client = serve(*aggregator_at(port), settings=("seed=5",), out="c")
    refused(server, "the aggregator", "other settings")
    refused(client, "the run ended", "other settings")
    assert aggregator.running
    # An aggregator to which nobody could ever give orders does not begin.
    tokens.make(folder, ["ann"])
    flags = ("--cert", "certs/server.pem", "--key", "certs/server.key", "--tokens", "certs/tokens.txt")
    alone = cluster.nursery.start("aggregate", *one, *flags, cwd=cluster.folder)
    refused(alone, "cutlayer certs token split-server")
    # One that is not there is waited for, until Ctrl-C.
    aggregator.kill()
    cluster.port = 0
    waiting, client = serve("--aggregator", f"localhost:{port}", out="d")
    waiting.says(r"the aggregator: .*nobody listens there.*trying again")
    waiting.send(signal.SIGINT)
    assert waiting.wait() == 130, waiting.text
    assert client.running
