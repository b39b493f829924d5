"""Callers that hold what they can and send nothing: honest ones are answered as if they were not there."""

from pathlib import Path
from typing import Any

import grpc
import pytest
import torch
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cutlayer.inference.batcher import Batching
from cutlayer.inference.remote_model import RemoteModel
from cutlayer.inference.server import running
from cutlayer.inference.service import PREDICT
from cutlayer.wire.limits import Limits
from cutlayer.wire.security import tokens
from cutlayer.wire.security.credentials import ClientSecurity, ServerSecurity
from tests.samples import images

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


@pytest.fixture
def known(tmp_path: Path) -> tuple[ServerSecurity, dict[str, str]]:
    """A server's tokens, and those of its clients."""
    server, files = tokens.make(tmp_path, ["camera", "mallory", "eve"])
    secrets = {file.stem: file.read_text().strip() for file in files}
    return ServerSecurity(tokens=tokens.Tokens.load(server)), secrets


@pytest.fixture(autouse=True)
def hang_up(raw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that ends gives its connections ten seconds; attackers would take them."""
    end = running.__aexit__

    async def ended(server: running, *error: object) -> None:
        for connection in raw.opened:
            connection.close()
        await end(server, *error)

    monkeypatch.setattr(running, "__aexit__", ended)


def test_without_a_token_nothing_is_waited_for(served, trained, known, raw) -> None:
    security, secrets = known
    with served(trained, security=security) as (address, server):
        # A hundred calls whose bodies never come are refused at their headers: 16 is UNAUTHENTICATED.
        for stranger in [raw.call(port_of(address), PREDICT, calls=25) for _ in range(4)]:
            for trailers in raw.ends_of_calls(stranger, 25):
                assert b"grpc-status" in trailers
                assert b"16" in trailers
        for _ in range(3):
            wrong = raw.call(port_of(address), PREDICT, token="cutlayer-" + "x" * 43)
            assert b"16" in raw.end_of_call(wrong)
        with RemoteModel(address, trained, ClientSecurity(token=secrets["camera"])) as model:
            assert model(images(3)).shape == (3, 10)
        assert 'refusals_total{reason="credential"} 103.0' in server.metrics.text()


def test_a_client_that_sends_no_bodies_takes_its_own_places_only(served, trained, known, raw) -> None:
    security, secrets = known
    with served(trained, security=security, batching=Batching(pending=8)) as (address, server):
        for name in ("mallory", "eve"):
            # More calls than there are places: newer ones push out older ones.
            slow = raw.call(port_of(address), PREDICT, secrets[name], calls=30)
            assert len(raw.ends_of_calls(slow, 20)) == 20
        with RemoteModel(address, trained, ClientSecurity(token=secrets["camera"])) as model:
            for _ in range(3):
                assert model(images(3)).shape == (3, 10)
        assert 'refusals_total{reason="busy"}' in server.metrics.text()


def test_bodies_have_a_deadline(served, trained, raw) -> None:
    with served(trained, limits=Limits(body=0.2)) as (address, server):
        slow = raw.call(port_of(address), PREDICT, calls=20)
        for number in range(20):
            # Five bytes announce a message of a thousand, of which a few come.
            half = raw.frame(raw.DATA, 0, 1 + 2 * number, b"\0\0\0\x03\xe8" + b"xxx")
            slow.sendall(half)
        for trailers in raw.ends_of_calls(slow, 20):
            assert b"too slow" in trailers or b"\x014" in trailers
        with RemoteModel(address, trained) as model:
            assert model(images(3)).shape == (3, 10)
        assert 'refusals_total{reason="slow"} 20.0' in server.metrics.text()


def test_whoever_does_not_read_its_answer_keeps_no_place(served, trained, raw) -> None:
    with served(trained, batching=Batching(pending=4)) as (address, _):
        with RemoteModel(address, trained) as model:
            expected = model(images(3))
        deaf = raw.call(port_of(address), PREDICT, calls=30, settings=raw.CLOSED_WINDOW)
        for number in range(30):
            deaf.sendall(raw.data(b"", 1 + 2 * number, raw.END_STREAM))
        with RemoteModel(address, trained) as model:
            assert torch.equal(model(images(3)), expected)


def test_silent_probers_do_not_keep_others_from_asking_how_the_server_is(served, trained, raw) -> None:
    with served(trained) as (address, _):
        silent = [raw.call(port_of(address), path, calls=30) for path in 4 * (CHECK, WATCH)]
        # Watchers that take nothing in.
        for _ in range(10):
            deaf = raw.call(port_of(address), WATCH, calls=30, settings=raw.CLOSED_WINDOW)
            for number in range(30):
                deaf.sendall(raw.data(b"", 1 + 2 * number, raw.END_STREAM))
        with grpc.insecure_channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            for service in ("", "cutlayer.v1.Inference"):
                answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=60)
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
            watching = stub.Watch(health_pb2.HealthCheckRequest(service=""), timeout=60)
            assert next(watching).status == health_pb2.HealthCheckResponse.SERVING
            watching.cancel()
            with pytest.raises(grpc.RpcError) as caught:
                stub.Check(health_pb2.HealthCheckRequest(service="other"), timeout=60)
            assert caught.value.code() == grpc.StatusCode.NOT_FOUND
        with RemoteModel(address, trained) as model:
            assert model(images(3)).shape == (3, 10)
        assert len(silent) == 8


def test_a_revoked_token_is_refused_without_a_restart(served, trained, known, tmp_path) -> None:
    security, secrets = known
    with served(trained, security=security) as (address, _):
        with RemoteModel(address, trained, ClientSecurity(token=secrets["eve"])) as model:
            assert model(images(1)).shape == (1, 10)
            tokens.make(tmp_path, ["eve"], force=True)
            with pytest.raises(Exception, match="does not know this token"):
                model(images(1))
        new = (tmp_path / "eve.token").read_text().strip()
        with RemoteModel(address, trained, ClientSecurity(token=new)) as model:
            assert model(images(1)).shape == (1, 10)
