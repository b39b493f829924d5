"""Strangers, liars and floods: refused or bounded, while honest clients finish and get the same bits."""

import json
import socket
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch

from cutlayer.client.participant import Participant
from cutlayer.codecs import codec
from cutlayer.codecs import frame as layout
from cutlayer.wire.grpc.options import client_options
from cutlayer.wire.messages.base import pack
from cutlayer.wire.messages.protobuf import TRAIN, message_class
from cutlayer.wire.messages.types import Labels, Smashed

U = message_class("Up")
FLAGS = ("--max-message", "1", "--log", "events.jsonl")


def memory(pid: int) -> int:
    """The most memory that a process ever had, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) >> 10


def hello(**changes: Any) -> Any:
    fields = {"protocol": 1, "release": "test", "incarnation": bytes(range(16)), "attempt": 1, **changes}
    return U(hello=message_class("Hello")(**fields))


class Intruder:
    """Speaks the protocol by hand, over a connection of its own."""

    def __init__(self, port: int, token: str | None = None, credentials: Any = None) -> None:
        where = f"localhost:{port}"
        extra = [("grpc.use_local_subchannel_pool", 1)]
        self.channel = (
            grpc.secure_channel(where, credentials, [*client_options(), *extra])
            if credentials
            else grpc.insecure_channel(where, [*client_options(), *extra])
        )
        self._queue: list[Any] = []
        self._more = threading.Condition()
        metadata = [("authorization", f"Bearer {token}")] if token else []
        self.answers = self.channel.stream_stream(
            TRAIN,
            request_serializer=U.SerializeToString,
            response_deserializer=message_class("Down").FromString,
        )(self._requests(), metadata=metadata, timeout=120)

    def _requests(self) -> Iterator[Any]:
        while True:
            with self._more:
                self._more.wait_for(lambda: self._queue)
                message = self._queue.pop(0)
            if message is None:
                return
            yield message

    def say(self, message: Any) -> None:
        with self._more:
            self._queue.append(message)
            self._more.notify()

    def ask(self, message: Any) -> Any:
        self.say(message)
        return next(self.answers)

    def goodbye(self) -> str:
        """The reason with which the server ends the stream."""
        for answer in self.answers:
            if answer.WhichOneof("content") == "goodbye":
                return answer.goodbye.reason
        return ""

    def close(self) -> None:
        self.say(None)
        self.channel.close()


def data(number: int, message: tuple[bytes, ...]) -> Any:
    return U(data=message_class("Data")(number=number, message=b"".join(message)))


def ready_like(offer: Any) -> Any:
    """What an honest client 2 of digits would say."""
    device = Participant("digits", whole=True)
    return U(ready=device.prepare(offer))


def test_strangers_and_liars_are_refused_and_the_run_is_undisturbed(cluster, network) -> None:
    settings = ["train.epochs=3"]
    server = cluster.serve(*settings, flags=FLAGS)
    port = cluster.port
    # 1,000 connections that never say anything, and stay.
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(1000)]
    refusals = {
        "version 9": hello(protocol=9),
        "damaged Hello": hello(incarnation=b"short"),
        "there is no client 7": hello(claims=7),
        "Hello was expected": data(1, (b"x",)),
    }
    for reason, message in refusals.items():
        stranger = Intruder(port)
        stranger.say(message)
        assert reason in stranger.goodbye()
        stranger.close()
    loud = Intruder(port)
    loud.ask(hello(claims=1))
    loud.say(data(1, (bytes(3 << 20),)))
    with pytest.raises(grpc.RpcError) as error:
        list(loud.answers)
    assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    loud.close()
    liar = Intruder(port)
    offer = liar.ask(hello(claims=1, incarnation=b"l" * 16)).offer
    assert json.loads(offer.settings)["train"]["epochs"] == 3
    assert "source" not in json.loads(offer.settings)["data"]
    liar.say(U(ready=message_class("Ready")(digest="0" * 64)))
    assert "install the same release" in liar.goodbye()
    liar.close()
    clients = [cluster.join(number) for number in (0, 1)]
    # Client 2 is there, is welcome, and then sends what its batch cannot be.
    traitor = Intruder(port)
    offer = traitor.ask(hello(claims=2, incarnation=b"t" * 16)).offer
    assert traitor.ask(ready_like(offer)).WhichOneof("content") == "welcome"
    traitor.say(data(1, pack(Smashed(0, codec("dense").encode(torch.ones(1000))))))
    traitor.say(data(2, pack(Labels(0, b"\0" * 4, 8))))
    told = traitor.goodbye()
    assert "claims 1,000 elements" in told
    assert "its batch of step 0 has [8, " in told
    # Its Hello, used again, is worth nothing.
    again = Intruder(port)
    again.say(hello(claims=2, incarnation=b"t" * 16))
    assert "used before" in again.goodbye()
    for one in (traitor, again):
        one.close()
    # Somebody who pretends to be client 0 while it is connected.
    server.says("(?s)going back to step 0.*waiting for client 2 of 3")
    thief = Intruder(port)
    thief.say(hello(claims=0, incarnation=b"x" * 16))
    assert "connected from another process" in thief.goodbye()
    thief.close()
    clients.append(cluster.join(2))
    loop = cluster.train(*settings)
    assert server.wait() == 0, server.text
    assert [client.wait() for client in clients] == [0, 0, 0]
    for connection in idle:
        connection.close()
    assert network.plain(cluster.folder / "net") == network.plain(loop)
    events = [json.loads(line) for line in (cluster.folder / "events.jsonl").read_text().splitlines()]
    assert {"refused", "client-expelled", "client-ready", "rollback"} <= {e["event"] for e in events}


def test_floods_slow_readers_and_bombs_cost_the_server_little(cluster, network) -> None:
    server = cluster.serve("train.epochs=5000", flags=FLAGS)
    clients = [cluster.join(number) for number in (0, 1)]
    bomber = Intruder(cluster.port)
    offer = bomber.ask(hello(claims=2, incarnation=b"o" * 16)).offer
    ready = ready_like(offer)
    assert bomber.ask(ready).WhichOneof("content") == "welcome"
    before = memory(server.pid)
    # A frame of a few bytes that claims 2^40 elements.
    bomber.say(data(1, pack(Smashed(0, bomb((1 << 10,) * 4)))))
    bomber.say(data(2, pack(Labels(0, b"\0" * 4, 8))))
    assert "elements" in bomber.goodbye()
    bomber.close()
    # A flood of messages that nobody asked for, from a client that reads nothing.
    flood = Intruder(cluster.port)
    assert flood.ask(hello(claims=2, incarnation=b"f" * 16)).WhichOneof("content") == "offer"
    assert flood.ask(ready).WhichOneof("content") == "welcome"
    for number in range(200):
        flood.say(data(1 + number, pack(Smashed(number, bytes(1 << 19)))))
    # Whether the server first has too many of them or first looks at one is a matter of moments.
    server.says("nobody asked for|sent a Smashed of step [0-9]+; expected")
    flood.close()
    assert memory(server.pid) - before < 150
    # An honest client in its place, and the run goes on.
    clients.append(cluster.join(2))
    network.until(lambda: len(cluster.records()) > 5, "steps of three")
    assert all(client.running for client in clients)


def bomb(shape: tuple[int, ...]) -> bytes:
    """A few bytes that claim to be a tensor of that shape, with a checksum that fits."""
    honest = codec("sp:ratio=0.9,store=keys").encode(torch.ones(100))
    header = layout.parse(memoryview(honest))
    payload = honest[header.payload_offset :]
    made = bytearray(
        layout.build(header.codec_id, header.dtype, header.signed, shape, header.block, len(payload))
        + payload
    )
    made[4:8] = struct.pack("<I", zlib.crc32(made[layout.CHECKED_FROM :]))
    return bytes(made)
