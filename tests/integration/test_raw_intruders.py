"""Intruders that speak HTTP/2 by hand, because an honest gRPC library would not send or do such things."""

import json
import struct
from typing import Any

from cutlayer.client.participant import Participant
from cutlayer.wire.messages.protobuf import message_class


def test_a_message_that_claims_2_gib_is_refused_at_its_first_bytes(cluster, raw) -> None:
    server = cluster.serve("train.epochs=1")
    clients = [cluster.join(number) for number in (0, 1)]
    server.says("waiting for client 2")
    before = raw.memory(server.pid)
    connections = {raw.call(cluster.port): size for size in 10 * [2 << 30, (1 << 32) - 1]}
    for connection, claimed in connections.items():
        # Five bytes announce the message; of its body a little comes.
        connection.sendall(raw.frame(raw.DATA, 0, 1, b"\0" + struct.pack(">I", claimed) + bytes(8000)))
    for connection in connections:
        trailers = raw.end_of_call(connection)
        # 8 is RESOURCE_EXHAUSTED.
        assert b"grpc-status\x018" in trailers, trailers
        connection.close()
    assert raw.memory(server.pid) - before < 100
    clients.append(cluster.join(2))
    assert server.wait() == 0, server.text
    assert [client.wait() for client in clients] == [0, 0, 0]


def test_a_client_that_stops_reading_is_let_go(cluster, network, raw) -> None:
    # The state of a client that comes late is larger than what HTTP/2 lets wait on the way, 64 KiB.
    flags = ("--log", "events.jsonl", "--straggler", "drop", "--deadline", "4", "--quorum", "2")
    server = cluster.serve("train.epochs=5000", "model.width=32", flags=flags)
    clients = [cluster.join(number) for number in range(3)]
    network.until(lambda: len(cluster.records()) > 3, "steps of three")
    dropped = events(cluster, "client-dropped")
    clients[2].kill()
    network.until(lambda: events(cluster, "client-dropped") > dropped, "the drop of the dead client")
    dropped, left = events(cluster, "client-dropped"), events(cluster, "client-left")
    before = raw.memory(server.pid)
    slow = raw.call(cluster.port)
    raw.say(slow, hello=message_class("Hello")(protocol=1, incarnation=bytes(16), attempt=1, claims=2))
    raw.say(slow, ready=Participant("digits", whole=True).prepare(raw.hear(slow).offer))
    # From here on it reads nothing, and stays connected.
    network.until(lambda: events(cluster, "client-dropped") > dropped, "the drop of the slow client")
    network.until(lambda: events(cluster, "client-left") > left, "the end of its stream")
    seen = len(cluster.records())
    network.until(lambda: len(cluster.records()) > seen + 3, "more steps")
    assert server.running
    assert all(client.running for client in clients[:2])
    assert raw.memory(server.pid) - before < 100
    slow.close()


def events(cluster: Any, name: str) -> int:
    lines = (cluster.folder / "events.jsonl").read_text().splitlines()
    return sum(json.loads(line)["event"] == name and json.loads(line)["client"] == 2 for line in lines)
