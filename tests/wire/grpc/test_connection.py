"""What a client hears of a server that turns it away, over a real socket."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from cutlayer.errors import CredentialError
from cutlayer.wire.grpc.connection import Connection
from cutlayer.wire.messages.envelope import to_bytes
from cutlayer.wire.messages.protobuf import LISTENING, TRAINING, message_class
from cutlayer.wire.security.credentials import ClientSecurity

PATIENCE = 120


def serving(train: Any) -> Iterator[str]:
    """A server of gRPC's own, in threads, that answers streams with `train`."""
    server = grpc.server(ThreadPoolExecutor(4))
    method = grpc.stream_stream_rpc_method_handler(train, response_serializer=to_bytes)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(TRAINING, {"Train": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0).wait()


@pytest.fixture
def refusing() -> Iterator[str]:
    def train(_: Any, context: Any) -> Any:
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "no token")

    yield from serving(train)


@pytest.fixture
def crowded() -> Iterator[str]:
    """Says goodbye without listening to Hello."""
    goodbye = message_class("Goodbye")

    def train(_: Any, context: Any) -> Any:
        context.send_initial_metadata(((LISTENING, "1"),))
        yield message_class("Down")(goodbye=goodbye(code=goodbye.Code.Value("REFUSED"), reason="full"))

    yield from serving(train)


def last_word(address: str) -> Any:
    connection = Connection(address, ClientSecurity(), retry=0, events=queue.Queue())
    try:
        return connection.events.get(timeout=PATIENCE)
    finally:
        connection.close()


def test_the_reason_of_a_refusal_arrives_however_the_writes_fall(refusing: str) -> None:
    for _ in range(40):
        event = last_word(refusing)
        assert event.kind == "lost"
        assert isinstance(event.content, CredentialError), event.content
        assert "no token" in str(event.content)


def test_a_goodbye_before_hello_arrives(crowded: str) -> None:
    for _ in range(40):
        event = last_word(crowded)
        assert (event.kind, event.content) == ("goodbye", ("REFUSED", "full"))
