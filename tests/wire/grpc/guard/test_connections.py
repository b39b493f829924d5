"""Connections that say nothing go when there are too many; those with a credential stay."""

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from cutlayer.wire.grpc.guard.connections import _oldest_of_most, connections_at_most
from cutlayer.wire.grpc.server import Listening, running
from cutlayer.wire.grpc.transport import GrpcTransport
from cutlayer.wire.limits import Limits
from cutlayer.wire.messages.protobuf import message_class
from cutlayer.wire.security import tokens
from cutlayer.wire.security.credentials import ServerSecurity
from tests.waiting import until

#: Nothing but the bound of unknown connections closes one here: handshakes may take ten minutes.
LIMITS = {"connections": 64, "hello": 600.0, "handshake": 600.0}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at sockets through /proc")


def hello(client: int) -> Any:
    return message_class("Hello")(protocol=1, incarnation=bytes([client]) * 16, attempt=1)


def offered(raw: Any, port: int, client: int, token: str) -> socket.socket | None:
    """A stream on which the server has made its offer; None if it hung up."""
    try:
        stream = raw.call(port, token=token)
        raw.say(stream, hello=hello(client))
        return stream if raw.hear(stream).WhichOneof("content") == "offer" else None
    except ConnectionError:
        return None


def test_idle_connections_keep_nobody_out(raw: Any, tmp_path: Path) -> None:
    known, files = tokens.make(tmp_path, ["ann", "bob"])
    ann, bob = (file.read_text().strip() for file in files)
    ports: list[int] = []
    listening = Listening(
        "127.0.0.1:0",
        ServerSecurity(tokens=tokens.Tokens.load(known)),
        limits=Limits(**LIMITS),  # type: ignore[arg-type]
        ready=ports.append,
    )
    with running(GrpcTransport(2, limits=listening.limits, names=("ann", "bob")), listening, "{}"):
        port = ports[0]
        first = until(lambda: offered(raw, port, 0, ann))
        # Plain TCP, more than the server accepts in all.
        idle = [raw.connect(port) for _ in range(200)]
        second = until(lambda: offered(raw, port, 1, bob))
        # They have shown a credential, so they stay, however many come after them.
        idle += [raw.connect(port) for _ in range(200)]
        until(lambda: closed(idle[300]))
        for stream in (first, second):
            raw.say(stream, ready=message_class("Ready")(digest="0" * 64))
            assert "install the same release" in raw.hear(stream).goodbye.reason
        for connection in (*idle, first, second):
            connection.close()


def closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1 << 16, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_the_oldest_of_the_host_that_has_most_go_first() -> None:
    hosts = {"flood": [(5, 50), (1, 10), (2, 20), (3, 30)], "other": [(0, 7), (4, 8)], "one": [(0, 9)]}
    assert _oldest_of_most(hosts, 0) == []
    assert _oldest_of_most(hosts, 2) == [10, 20]
    assert sorted(_oldest_of_most(hosts, 4)) == [7, 10, 20, 30]
    assert len(_oldest_of_most(hosts, 7)) == 7


def test_connections_leave_descriptors_for_files() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = connections_at_most(Limits())
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert found <= max(16, soft - 256)
    assert soft >= before[0]
