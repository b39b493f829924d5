"""What a server tells about itself: metrics, logs without secrets, health."""

import asyncio
import json
import math
import urllib.request
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cutlayer.errors import ConfigError, FileError, UnreachableError
from cutlayer.wire import log
from cutlayer.wire.grpc.health import add_health
from cutlayer.wire.meter import Direction, Kind, Meter
from cutlayer.wire.metrics import Metrics
from cutlayer.wire.security import certs, tokens


def scrape(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in (x.rsplit(" ", 1) for x in lines if x[0] != "#")}


def test_a_scrape_tells_what_was_counted() -> None:
    with Metrics() as metrics:
        port = metrics.serve(0)
        metrics.step(3)
        connected = [1]
        metrics.watch(lambda: connected[0], lambda: 7)
        connected[0] = 2  # what counts is how it is at the scrape
        metrics.sent(Kind.SMASHED, Direction.UP, 1200)
        meter = Meter()
        meter.add(Kind.SMASHED, Direction.UP, 34, client=1)
        meter.add(Kind.SYNC, Direction.DOWN, 5, client=1)
        metrics.traffic(meter.since({}))
        metrics.stage("decode", 0.25)
        metrics.queue("requests", 3)
        metrics.refused("token")
        metrics.inferred(4, 32)
        found = scrape(port)
    assert found["cutlayer_steps_total"] == 3
    assert found["cutlayer_connected_clients"] == 2
    assert found['cutlayer_bytes_total{direction="up",kind="smashed"}'] == 1234
    assert found['cutlayer_bytes_total{direction="down",kind="sync"}'] == 5
    assert found['cutlayer_bytes_total{direction="down",kind="labels"}'] == 0
    assert found['cutlayer_stage_seconds_total{stage="decode"}'] == 0.25
    assert found['cutlayer_queue_depth{queue="inbox"}'] == 7
    assert found['cutlayer_queue_depth{queue="requests"}'] == 3
    assert found['cutlayer_refusals_total{reason="token"}'] == 1
    assert found["cutlayer_samples_total"] == 32
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)


def test_two_servers_in_a_process_count_apart_and_not_on_one_port() -> None:
    with Metrics() as one, Metrics() as two:
        one.step()
        port = one.serve(0)
        with pytest.raises(UnreachableError, match="choose another --metrics port"):
            two.serve(port)
        with pytest.raises(UnreachableError, match="not a port"):
            two.serve(70000)
        assert "steps_total 0.0" in two.text()


@pytest.fixture
def logged(tmp_path: Path):
    """A log, and what it holds so far."""
    path = tmp_path / "log.jsonl"
    log.open_log(path, "debug")
    yield lambda: [json.loads(line) for line in path.read_text().splitlines()]
    log.close_log()


def test_events_are_json_lines(logged) -> None:
    log.event("client-joined", client="camera-0", step=12, sizes=[1, 2], loss=math.nan, path=Path("a/b"))
    log.event("broken", level="error", error=ValueError("bad\nthing"))
    first, second = logged()
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "info", "event": "client-joined", "client": "camera-0", "step": 12, "sizes": [1, 2],
        "loss": None, "path": "a/b",
    }  # fmt: skip
    assert (second["level"], second["error"]) == ("error", "ValueError: bad\nthing")


def test_no_secret_gets_into_a_log_however_it_tries(logged, tmp_path: Path) -> None:
    certs.make_ca(tmp_path)
    key = (tmp_path / "ca.key").read_text()
    _, (file,) = tokens.make(tmp_path, ["a"])
    token = tokens.read_token(file)
    log.keep_secret("hunter22")
    log.event(f"joined with {token}")
    log.event("x", client=token, nested={"a": [token, token.encode()], "token": "abc", token: 1})
    log.event("x", authorization="opaque", password="opaque", api_key="opaque", key="opaque")
    log.event("x", header="authorization: Bearer b3BhcXVl", said="it is hunter22!")
    log.event("x", error=ValueError(f"cannot parse {key} or {token}"))
    log.event("x", error=ValueError(key[: len(key) // 2]))
    text = json.dumps(logged())
    for secret in (token, "opaque", "b3BhcXVl", "hunter22", *key.splitlines()[1:-1], '"abc"'):
        assert secret not in text, secret
    assert key.splitlines()[1][:20] not in text
    assert text.count(log.BLOT) >= 12


def test_levels_and_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.event("nobody hears this")
    log.open_log(None, "warning")
    log.event("quiet")
    log.event("loud", level="warning")
    log.close_log()
    written = capsys.readouterr().err
    assert [json.loads(line)["event"] for line in written.splitlines()] == ["loud"]
    with pytest.raises(ConfigError, match="debug, info"):
        log.open_log(None, "chatty")
    with pytest.raises(FileError, match="cannot be written"):
        log.open_log(tmp_path / "none" / "x.jsonl")


def test_a_full_disk_does_not_stop_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    log.open_log(Path("/dev/full"))
    try:
        for _ in range(3):
            log.event("x" * 10_000)
    finally:
        log.close_log()
    assert capsys.readouterr().err == ""


def test_health_is_the_standard_service() -> None:
    async def main() -> list[int]:
        server = grpc.aio.server()
        health = add_health(server, ["cutlayer.v1.Training"])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        found = []
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            for is_serving in (False, True, False):
                await health.serving(is_serving)
                for service in ("", "cutlayer.v1.Training"):
                    request = health_pb2.HealthCheckRequest(service=service)
                    found.append((await stub.Check(request, timeout=10)).status)
            await health.leave()
            await health.serving(True)
            found.append((await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)).status)
        await server.stop(0)
        return found

    no, yes = health_pb2.HealthCheckResponse.NOT_SERVING, health_pb2.HealthCheckResponse.SERVING
    assert asyncio.run(main()) == [no, no, yes, yes, no, no, no]
