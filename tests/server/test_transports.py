"""The server on another transport: clients in threads of their own, with models of their own."""

import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace

import pytest
import torch

from cutlayer.aggregation.at_server import ServerAggregation
from cutlayer.client.build import build_client
from cutlayer.client.split_client import SplitClient
from cutlayer.config.schema import Config
from cutlayer.protocol.build import (
    make_client,
    make_codecs,
    make_plan,
    make_server,
    make_task,
    prepare_data,
    prepare_model,
)
from cutlayer.protocol.objects import BY_NAME
from cutlayer.server.asynchronous.arrivals import NetworkArrivals
from cutlayer.server.evaluation import evaluate_on
from cutlayer.server.split_server import SplitServer
from cutlayer.split.client import ClientHalf
from cutlayer.training.build import make_participation
from cutlayer.training.local_run import local_run
from cutlayer.wire.messages.base import Message
from cutlayer.wire.messages.types import head_size, parse
from cutlayer.wire.meter import Direction, Meter

U = ["train.mode=u-shaped", 'model.cut=["layer1", "fc"]']


class Threads:
    """Byte strings through queues, as a network would carry them; answers come whenever they come."""

    patient = True

    def __init__(self, workers: list[SplitClient]) -> None:
        self.meter = Meter()
        self._in: list[queue.Queue[bytes | None]] = [queue.Queue() for _ in workers]
        self._out: list[queue.Queue[bytes]] = [queue.Queue() for _ in workers]
        self._threads = [
            threading.Thread(target=self._run, args=(i, worker)) for i, worker in enumerate(workers)
        ]
        for thread in self._threads:
            thread.start()

    def announce(self, clients: Iterable[int], message: Message) -> None:
        for client in clients:
            self.send(client, message)

    def tell(self, clients: Iterable[int], message: Message) -> None:
        self.announce(clients, message)

    def send(self, client: int, message: Message) -> None:
        self.meter.add(message.kind, Direction.DOWN, message.size, client)
        self._in[client].put(message.head() + message.content)

    def receive(self, client: int) -> Message:
        message = self._parse(self._out[client].get(timeout=30))
        self.meter.add(message.kind, Direction.UP, message.size, client)
        return message

    def ready(self, client: int) -> bool:
        return False

    def members(self) -> tuple[int, ...]:
        return tuple(range(len(self._threads)))

    def present(self, clients: Sequence[int], messages: int, at_least: int | None = None) -> tuple[int, ...]:
        return tuple(clients)

    def label(self, client: int) -> str:
        return f"client {client}"

    def fault(self, client: int, error: Exception) -> None:
        raise error

    def close(self) -> None:
        for inbox in self._in:
            inbox.put(None)
        for thread in self._threads:
            thread.join(30)

    def _run(self, client: int, worker: SplitClient) -> None:
        torch.set_num_threads(1)
        while (data := self._in[client].get()) is not None:
            for answer in worker.handle(self._parse(data)):
                self._out[client].put(answer.head() + answer.content)

    @staticmethod
    def _parse(data: bytes) -> Message:
        end = head_size(data[0])
        return parse(data[:end], data[end:])


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["train.server_batching=fused"],
        ["train.mode=sequential"],
        ["train.mode=relay"],
        U,
        ["train.sync=2"],
        ["train.sync=2", "train.share_differences=true", "codec.sync=qu:bits=6"],
        ["train.clients_per_step=2"],
        ["train.clients_per_step=2", "train.sync=3", "train.share_differences=true", "codec.sync=qu:bits=6"],
    ],
    ids=lambda s: " ".join(s) or "parallel",
)
def test_another_transport_gives_the_same_bits(configure: Callable[..., Config], settings: list[str]) -> None:
    config = configure(
        *settings, "codec.up=rt:ratio=0.8", "data.limit=100", "data.partition=dirichlet:alpha=1"
    )
    session = local_run(config)
    data = prepare_data(config)

    def own() -> ClientHalf:
        return make_client(config, prepare_model(config, data.train)[1])

    workers = [
        build_client(config, data, client, own(), evaluator=client == 0)
        for client in range(config.train.clients)
    ]
    threads = Threads(workers)
    try:
        plan = make_plan(config.train, [len(part) for part in data.parts], config.seed)
        task, codecs = make_task(config, data.train), make_codecs(config)
        server = SplitServer(
            make_server(config, prepare_model(config, data.train)[1], task),
            plan,
            task,
            codecs,
            SimpleNamespace(transport=threads, admit_newcomers=lambda number: ()),
            ServerAggregation(codecs, config.train.weighting, threads),
            seed=config.seed,
            batching=config.train.server_batching,
            weighting=config.train.weighting,
            make_participation=make_participation(
                config,
                prepare_model(config, data.train)[1],
                codecs,
                lambda: NetworkArrivals(threads),
                BY_NAME,
            ),
        )
        for _ in range(plan.total):
            ours, theirs = session.step(), server.step()
            assert ours.losses == theirs.losses
            assert ours.bytes == theirs.bytes
        assert evaluate_on(server, 0, len(data.test)).loss == session.evaluate().loss
    finally:
        threads.close()
