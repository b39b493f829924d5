"""What a client hears of a server that turns it away, over a real socket."""

from __future__ import annotations

import queue
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from cutlayer.errors import CredentialError, CutlayerError, NetworkError, UnreachableError
from cutlayer.wire.grpc.client.connection_errors import blame
from cutlayer.wire.grpc.connection import Connection
from cutlayer.wire.messages.envelope import DOWN, seal, to_bytes
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


def last_word(address: str, security: ClientSecurity | None = None) -> Any:
    connection = Connection(address, security or ClientSecurity(), retry=0, events=queue.Queue())
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


def farewells(code: str, address: str = "") -> Iterator[str]:
    """A server that says the same goodbye to everybody, as often as they come."""
    goodbye = message_class("Goodbye")
    said = message_class("Down")(goodbye=goodbye(code=goodbye.Code.Value(code), reason="so", address=address))

    def train(_: Any, context: Any) -> Any:
        context.send_initial_metadata(((LISTENING, "1"),))
        yield said

    yield from serving(train)


@pytest.fixture
def sending_back() -> Iterator[str]:
    yield from farewells("AGAIN")


@pytest.fixture
def sending_on() -> Iterator[str]:
    yield from farewells("MOVED", "train.example.org:7000")


def test_a_server_that_sends_a_client_away_and_back_is_left(sending_back: str) -> None:
    event = last_word(sending_back)
    assert event.kind == "lost"
    assert "away and back again without end" in str(event.content)


@pytest.mark.parametrize(
    "security", [ClientSecurity(), ClientSecurity(token="secret", insecure=True)], ids=["local", "token"]
)
def test_nobody_can_send_a_token_on_to_a_host_of_their_choice(
    sending_on: str, security: ClientSecurity
) -> None:
    event = last_word(sending_on, security)
    assert isinstance(event.content, CredentialError)
    assert "sends this client on to train.example.org:7000" in str(event.content)


def test_who_is_sent_to_an_address_of_the_past_hears_who_sent_it() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        stale = f"127.0.0.1:{nobody.getsockname()[1]}"
        for address in farewells("MOVED", stale):
            event = last_word(address)
    assert event.kind == "lost"
    assert isinstance(event.content, NetworkError)
    assert f"{stale}: nobody listens there" in str(event.content)
    assert f"({address} sends this client there, as its server's --advertise says)" in str(event.content)


@pytest.mark.parametrize("kind", [CredentialError, NetworkError, UnreachableError])
def test_who_sent_a_client_on_does_not_change_what_went_wrong(kind: type[CutlayerError]) -> None:
    assert type(blame(kind("no"), "b:1", "a:1")) is kind


@pytest.mark.parametrize(
    "said",
    [b"\xff\xff\xff", b"", seal(DOWN, 1, 0, (b"x",), False, [(b"y",)] * 20)],
    ids=["no", "nothing", "many"],
)
def test_no_client_waits_for_ever_for_a_server_that_sends_nonsense(said: bytes) -> None:
    def train(_: Any, context: Any) -> Any:
        context.send_initial_metadata(((LISTENING, "1"),))
        yield said

    for address in serving(train):
        event = last_word(address)
        assert event.kind == "lost"
        assert isinstance(event.content, NetworkError)


SIZE, MOST, COUNT = 1 << 20, 4 << 20, 64


@pytest.fixture
def flooding() -> Iterator[tuple[str, list[int]]]:
    """Says welcome, and then sends whatever the client takes."""
    sent: list[int] = []
    down = message_class("Down")

    def train(requests: Any, context: Any) -> Any:
        context.send_initial_metadata(((LISTENING, "1"),))
        next(requests)
        yield down(offer=message_class("Offer")(client=0, clients=1))
        next(requests)
        yield down(welcome=message_class("Welcome")(era="e"))
        for number in range(1, COUNT + 1):
            sent.append(number)
            yield seal(DOWN, number, 0, (bytes(SIZE),))

    for address in serving(train):
        yield address, sent


def test_a_flood_waits_at_the_server_until_messages_are_handled(flooding: tuple[str, list[int]]) -> None:
    address, sent = flooding
    connection = Connection(address, ClientSecurity(), retry=0)
    try:
        connection.take_at_most(MOST)
        connection.prepared(connection.events.get(timeout=PATIENCE), message_class("Ready")())
        settled, seen = 0, -1
        while settled < 30:  # until nothing comes any more, as nothing is handled
            time.sleep(0.01)
            settled, seen = (settled + 1, seen) if len(sent) == seen else (0, len(sent))
        # One more than fits; the welcome is there, too.
        assert connection.events.qsize() <= MOST // SIZE + 2
        kinds = [connection.events.get(timeout=PATIENCE).kind for _ in range(COUNT + 1)]
        assert kinds == ["welcome", *["data"] * COUNT]  # nothing was lost
    finally:
        connection.close()
