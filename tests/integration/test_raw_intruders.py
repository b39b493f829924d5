"""Intruders that speak HTTP/2 by hand, because an honest gRPC library would not send or do such things."""

import json
import socket
import struct
from pathlib import Path
from typing import Any

from cutlayer.client.participant import Participant
from cutlayer.wire.messages.protobuf import TRAIN, message_class

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
END_STREAM, END_HEADERS = 1, 4


def memory(pid: int) -> int:
    """The most memory that a process ever had, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) >> 10


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """A header as HPACK writes one that is in no table."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def call(port: int) -> socket.socket:
    """A connection on which the method Train has been called, as stream 1."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=120)
    headers = {":method": "POST", ":scheme": "http", ":path": TRAIN, ":authority": "localhost"}
    headers |= {"content-type": "application/grpc", "te": "trailers"}
    block = b"".join(literal(name.encode(), value.encode()) for name, value in headers.items())
    connection.sendall(PREFACE + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, END_HEADERS, 1, block))
    return connection


def exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = connection.recv(size - len(found))
        if not more:
            raise ConnectionError("the server hung up")
        found += more
    return found


def end_of_call(connection: socket.socket) -> bytes:
    """What the server says when it ends stream 1: the trailers."""
    trailers = b""
    while True:
        head = exactly(connection, 9)
        size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        payload = exactly(connection, size)
        assert kind != GOAWAY, payload
        if kind == HEADERS:
            trailers = payload
        if kind in (HEADERS, DATA) and flags & END_STREAM:
            return trailers
        if kind == RST_STREAM:
            return trailers


def test_a_message_that_claims_2_gib_is_refused_at_its_first_bytes(cluster) -> None:
    server = cluster.serve("train.epochs=1")
    clients = [cluster.join(number) for number in (0, 1)]
    server.says("waiting for client 2")
    before = memory(server.pid)
    connections = {call(cluster.port): size for size in 10 * [2 << 30, (1 << 32) - 1]}
    for connection, claimed in connections.items():
        # Five bytes announce the message; of its body a little comes.
        connection.sendall(frame(DATA, 0, 1, b"\0" + struct.pack(">I", claimed) + bytes(8000)))
    for connection in connections:
        trailers = end_of_call(connection)
        # 8 is RESOURCE_EXHAUSTED.
        assert b"grpc-status\x018" in trailers, trailers
        connection.close()
    assert memory(server.pid) - before < 100
    clients.append(cluster.join(2))
    assert server.wait() == 0, server.text
    assert [client.wait() for client in clients] == [0, 0, 0]


def say(connection: socket.socket, **content: Any) -> None:
    body = message_class("Up")(**content).SerializeToString()
    connection.sendall(frame(DATA, 0, 1, b"\0" + struct.pack(">I", len(body)) + body))


def hear(connection: socket.socket) -> Any:
    """The next message of the server; it is small enough for one frame."""
    while True:
        head = exactly(connection, 9)
        payload = exactly(connection, int.from_bytes(head[:3], "big"))
        if head[3] == DATA:
            return message_class("Down").FromString(payload[5:])


def test_a_client_that_stops_reading_is_let_go(cluster, network) -> None:
    # The state of a client that comes late is larger than what HTTP/2 lets wait on the way, 64 KiB.
    flags = ("--log", "events.jsonl", "--straggler", "drop", "--deadline", "4", "--quorum", "2")
    server = cluster.serve("train.epochs=5000", "model.width=32", flags=flags)
    clients = [cluster.join(number) for number in range(3)]
    network.until(lambda: len(cluster.records()) > 3, "steps of three")
    dropped = events(cluster, "client-dropped")
    clients[2].kill()
    network.until(lambda: events(cluster, "client-dropped") > dropped, "the drop of the dead client")
    dropped, left = events(cluster, "client-dropped"), events(cluster, "client-left")
    before = memory(server.pid)
    slow = call(cluster.port)
    say(slow, hello=message_class("Hello")(protocol=1, incarnation=bytes(16), attempt=1, claims=2))
    say(slow, ready=Participant("digits", whole=True).prepare(hear(slow).offer))
    # From here on it reads nothing, and stays connected.
    network.until(lambda: events(cluster, "client-dropped") > dropped, "the drop of the slow client")
    network.until(lambda: events(cluster, "client-left") > left, "the end of its stream")
    seen = len(cluster.records())
    network.until(lambda: len(cluster.records()) > seen + 3, "more steps")
    assert server.running
    assert all(client.running for client in clients[:2])
    assert memory(server.pid) - before < 100
    slow.close()


def events(cluster: Any, name: str) -> int:
    lines = (cluster.folder / "events.jsonl").read_text().splitlines()
    return sum(json.loads(line)["event"] == name and json.loads(line)["client"] == 2 for line in lines)
