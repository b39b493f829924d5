"""gRPC spoken by hand over HTTP/2, because an honest library would not send or do such things."""

import socket
import struct
from pathlib import Path
from typing import Any

from cutlayer.wire.messages.protobuf import TRAIN, message_class

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
END_STREAM, END_HEADERS = 1, 4
#: A peer with a window of this many bytes lets nothing through.
CLOSED_WINDOW = struct.pack(">HI", 4, 0)
opened: list[socket.socket] = []


def memory(pid: int) -> int:
    """The most memory that a process ever had, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) >> 10


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """A header as HPACK writes one that is in no table."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def headers(path: str = TRAIN, token: str | None = None) -> bytes:
    """The headers of a call, as HPACK."""
    found = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost"}
    found |= {"content-type": "application/grpc", "te": "trailers"}
    if token is not None:
        found["authorization"] = f"Bearer {token}"
    return b"".join(literal(name.encode(), value.encode()) for name, value in found.items())


def connect(port: int) -> socket.socket:
    """A connection on which nothing has been said."""
    opened.append(socket.create_connection(("127.0.0.1", port), timeout=120))
    return opened[-1]


def call(
    port: int, path: str = TRAIN, token: str | None = None, calls: int = 1, settings: bytes = b""
) -> socket.socket:
    """A connection on which a method has been called, as streams 1, 3, 5, ...; nothing else is sent."""
    connection = connect(port)
    sent = [frame(HEADERS, END_HEADERS, 1 + 2 * number, headers(path, token)) for number in range(calls)]
    connection.sendall(PREFACE + frame(SETTINGS, 0, 0, settings) + b"".join(sent))
    return connection


def exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = connection.recv(size - len(found))
        if not more:
            raise ConnectionError("the server hung up")
        found += more
    return found


def ends_of_calls(connection: socket.socket, calls: int) -> list[bytes]:
    """What the server says when it ends so many streams: their trailers."""
    trailers: dict[int, bytes] = {}
    ended: set[int] = set()
    while len(ended) < calls:
        head = exactly(connection, 9)
        size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        stream = int.from_bytes(head[5:], "big")
        payload = exactly(connection, size)
        assert kind != GOAWAY, payload
        if kind == HEADERS:
            trailers[stream] = payload
        if (kind in (HEADERS, DATA) and flags & END_STREAM) or kind == RST_STREAM:
            ended.add(stream)
    return [trailers.get(stream, b"") for stream in sorted(ended)]


def end_of_call(connection: socket.socket) -> bytes:
    """What the server says when it ends stream 1: the trailers."""
    return ends_of_calls(connection, 1)[0]


def hung_up(connection: socket.socket) -> bool:
    """Wait until the server closes the connection, whatever it says before."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


def data(body: bytes, stream: int = 1, flags: int = 0) -> bytes:
    """A frame with one gRPC message."""
    return frame(DATA, flags, stream, b"\0" + struct.pack(">I", len(body)) + body)


def say(connection: socket.socket, **content: Any) -> None:
    connection.sendall(data(message_class("Up")(**content).SerializeToString()))


def hear(connection: socket.socket) -> Any:
    """The next message of the server; it is small enough for one frame."""
    while True:
        head = exactly(connection, 9)
        payload = exactly(connection, int.from_bytes(head[:3], "big"))
        if head[3] == DATA:
            return message_class("Down").FromString(payload[5:])
