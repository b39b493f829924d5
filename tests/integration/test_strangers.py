"""Who has no credential, or says nothing, costs little and keeps nobody out."""

import concurrent.futures
import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from cutlayer.wire.messages.protobuf import TRAIN, message_class
from cutlayer.wire.security import tokens

FLAGS = ("--log", "events.jsonl")


def hello(**changes: Any) -> dict[str, Any]:
    fields = {"protocol": 1, "release": "test", "incarnation": bytes(range(16)), "attempt": 1, **changes}
    return {"hello": message_class("Hello")(**fields)}


def events(cluster: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (cluster.folder / "events.jsonl").read_text().splitlines()]


def test_silent_streams_keep_nobody_out(cluster, raw) -> None:
    cluster.serve(flags=FLAGS)
    silent = [raw.call(cluster.port, calls=4) for _ in range(50)]
    # Three times as many as are let in at a time, and none has said Hello: one that does is answered at once.
    for number in range(3):
        honest = raw.call(cluster.port)
        raw.say(honest, **hello(claims=number, incarnation=bytes([number]) * 16))
        assert raw.hear(honest).WhichOneof("content") == "offer"
    for connection in silent:
        connection.close()


def test_a_stream_that_was_replaced_ends(cluster, raw) -> None:
    cluster.serve(flags=FLAGS)
    old, new = raw.call(cluster.port), raw.call(cluster.port)
    raw.say(old, **hello(claims=0))
    assert raw.hear(old).WhichOneof("content") == "offer"
    raw.say(new, **hello(claims=0, attempt=2))
    assert raw.hear(new).WhichOneof("content") == "offer"
    # The old one is told so and closed, though it was still about to load its data.
    assert "newer connection" in raw.hear(old).goodbye.reason
    raw.end_of_call(old)


@pytest.fixture
def with_tokens(cluster) -> dict[str, str]:
    """Three clients' tokens."""
    _, files = tokens.make(cluster.folder / "certs", ["ann", "bob", "cat"])
    return {file.stem: file.read_text().strip() for file in files}


def revoke(file: Path, name: str) -> None:
    kept = [line for line in file.read_text().splitlines(keepends=True) if not line.startswith(f"{name} ")]
    file.write_text("".join(kept))


def test_a_revoked_token_is_worth_nothing_at_once(cluster, raw, with_tokens) -> None:
    server = cluster.serve(flags=(*FLAGS, "--tokens", "certs/tokens.txt"))
    streams = {name: raw.call(cluster.port, token=token) for name, token in with_tokens.items()}
    for number, (_, stream) in enumerate(streams.items()):
        raw.say(stream, **hello(incarnation=bytes([number]) * 16))
        assert raw.hear(stream).WhichOneof("content") == "offer"
    revoke(cluster.folder / "certs/tokens.txt", "bob")
    # Who is connected with it is disconnected; who comes with it is refused.
    assert "revoked" in raw.hear(streams["bob"]).goodbye.reason
    raw.end_of_call(streams["bob"])
    # 16 is UNAUTHENTICATED.
    assert b"grpc-status\x0216" in raw.end_of_call(raw.call(cluster.port, token=with_tokens["bob"]))
    # A file that is damaged changes nothing, and is told.
    (cluster.folder / "certs/tokens.txt").write_text("half a li")
    again = raw.call(cluster.port, token=with_tokens["ann"])
    raw.say(again, **hello(incarnation=bytes([0]) * 16, attempt=2))
    assert raw.hear(again).WhichOneof("content") == "offer"
    assert {"tokens-reloaded", "tokens-damaged"} <= {event["event"] for event in events(cluster)}
    assert server.running


def test_a_peers_text_cannot_command_the_terminal(cluster, raw) -> None:
    clear = "\x1b[2J\x1b]0;owned\x07"
    server = cluster.serve("train.clients=1", "data.partition=even", flags=FLAGS)
    stranger = raw.call(cluster.port)
    raw.say(stranger, **hello(protocol=9, release=clear))
    assert clear[:4] not in raw.hear(stranger).goodbye.reason
    failing = raw.call(cluster.port)
    raw.say(failing, **hello(claims=0))
    offer = raw.hear(failing).offer
    ready = {"digest": offer.digest, "samples": 8, "test_samples": 8, "classes": 10, "shape": [1, 8, 8]}
    ready |= {"pixels": True, "name": clear, "augment": "none", "mean": [0.5], "std": [0.5]}
    raw.say(failing, ready=message_class("Ready")(**ready))
    assert raw.hear(failing).WhichOneof("content") == "welcome"
    raw.say(failing, failed=message_class("Failed")(reason=f"sorry {clear}"))
    server.says(r"sorry \\x1b\[2J")
    assert "\x1b" not in server.text
    assert "\x1b" not in (cluster.folder / "events.jsonl").read_text()


def test_a_servers_text_cannot_command_a_clients_terminal(cluster) -> None:
    clear = "\x1b[2J\x1b]0;owned\x07"

    def train(_: Any, context: Any) -> Any:
        context.abort(grpc.StatusCode.UNAUTHENTICATED, f"no {clear}")

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    method = grpc.stream_stream_rpc_method_handler(train)
    service = TRAIN.split("/")[1]
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Train": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    client = cluster.join(0, port=port)
    assert client.wait() == 1
    assert "no " in client.text
    assert "\x1b" not in client.text
    server.stop(0).wait()
