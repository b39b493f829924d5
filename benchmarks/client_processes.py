"""Clients in processes of their own, for benchmarks: a server here, and real connections on loopback."""

import multiprocessing
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from cutlayer.client.participant import Participant
from cutlayer.config.schema import Config
from cutlayer.protocol.admission import Fits
from cutlayer.protocol.handshake import data_spec_of, settings_for_clients
from cutlayer.server.split_server import SplitServer
from cutlayer.training.serving.remote_server import remote_server
from cutlayer.wire.grpc.connection import Connection
from cutlayer.wire.grpc.server import Listening, running
from cutlayer.wire.grpc.transport import GrpcTransport
from cutlayer.wire.messages.base import pack
from cutlayer.wire.messages.protobuf import message_class
from cutlayer.wire.messages.types import Smashed, unpack
from cutlayer.wire.security.credentials import ClientSecurity


class _Tagged:
    """One queue for the events of many connections."""

    def __init__(self, shared: "queue.Queue[Any]", number: int) -> None:
        self._shared, self._number = shared, number

    def put(self, event: Any) -> None:
        self._shared.put((self._number, event))


def clients(port: int, numbers: list[int], data: str, root: str) -> None:
    """A process with some clients. If there are no data, they send back what they get."""
    torch.set_num_threads(1)
    shared: queue.Queue[Any] = queue.Queue()
    participants = {n: Participant(data, root, whole=True) for n in numbers}
    connections = {
        n: Connection(f"127.0.0.1:{port}", ClientSecurity(), claims=n, events=_Tagged(shared, n))
        for n in numbers
    }
    while connections:
        number, event = shared.get()
        connection, participant = connections[number], participants[number]
        if event.kind in ("goodbye", "lost"):
            connections.pop(number).close()
        elif event.kind == "offer":
            ready = (
                participant.prepare(event.content)
                if data
                else message_class("Ready")(digest=event.content.digest)
            )
            connection.prepared(event, ready)
        elif event.kind == "welcome":
            if data:
                participant.begin(event.content)
        elif not data:
            message = unpack(event.content)
            connection.send(event.conversation, pack(Smashed(message.number, message.content)))
        else:
            connection.send(event.conversation, *map(pack, participant.handle(unpack(event.content))))


@contextmanager
def started(
    config: Config, transport: GrpcTransport, processes: int, data: str, root: str, link: str = ""
) -> Iterator[list[Any]]:
    """A server in this process, and clients in others; what they said of their data."""
    context = multiprocessing.get_context("spawn")
    ports: list[int] = []
    listening = Listening("127.0.0.1:0", link=link, ready=ports.append)
    with running(transport, listening, settings_for_clients(config), confirms=config.codec.follows_link):
        numbers = list(range(config.train.clients))
        found = [
            context.Process(target=clients, args=(ports[0], numbers[i::processes], data, root), daemon=True)
            for i in range(processes)
        ]
        for process in found:
            process.start()
        yield transport.assemble()
    for process in found:
        process.join(20)


@contextmanager
def network_run(config: Config, root: str, processes: int, link: str = "") -> Iterator[SplitServer]:
    """A run over the network that has begun."""
    transport = GrpcTransport(config.train.clients, check=Fits(config))
    with started(config, transport, processes, config.data.source, root, link) as ready:
        server = remote_server(config, transport, ready, data_spec_of(ready))
        server.clients.begin(0)
        yield server
