"""Liars at the door: they decide nothing for others, cost the server nothing, and tire of coming back."""

import queue
from pathlib import Path
from typing import Any

import grpc
import pytest

from cutlayer.client.participant import Participant
from cutlayer.wire.grpc.options import client_options
from cutlayer.wire.messages.protobuf import TRAIN, message_class

U = message_class("Up")


class Liar:
    """Is admitted as a client of that number, and says of its data what it likes."""

    def __init__(self, port: int, client: int, number: int = 0) -> None:
        self._said: queue.Queue[Any] = queue.Queue()
        extra = [("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.insecure_channel(f"localhost:{port}", [*client_options(), *extra])
        self._answers = self._channel.stream_stream(
            TRAIN,
            request_serializer=U.SerializeToString,
            response_deserializer=message_class("Down").FromString,
        )(iter(self._said.get, None), timeout=120)
        incarnation = bytes([client + 1]) + number.to_bytes(15, "big")
        self.say(hello=message_class("Hello")(protocol=1, incarnation=incarnation, attempt=1, claims=client))
        self.answer = self.hear()

    def say(self, **content: Any) -> None:
        self._said.put(U(**content))

    def hear(self) -> Any:
        return next(self._answers)

    def ready(self, **changes: Any) -> None:
        found = Participant("digits", whole=True).prepare(self.answer.offer)
        for name, value in changes.items():
            if isinstance(value, list):
                del getattr(found, name)[:]
                getattr(found, name).extend(value)
            else:
                setattr(found, name, value)
        self.say(ready=found)

    def goodbye(self) -> Any:
        while True:
            found = self.hear()
            if found.WhichOneof("content") == "goodbye":
                return found.goodbye

    def leave(self) -> None:
        self._said.put(None)
        self._channel.close()


def memory(pid: int) -> int:
    """The most memory that a process ever had, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) >> 10


FEATURES = {"shape": [20], "pixels": False, "mean": [0.0] * 20, "std": [1.0] * 20}


def ends_well(cluster, network, server, clients) -> None:
    loop = cluster.train()
    assert server.wait() == 0, server.text
    assert [client.wait() for client in clients] == [0, 0, 0], [client.text for client in clients]
    network.same_weights(loop, cluster.folder / "net")


def test_a_liar_that_has_left_decides_nothing(cluster, network) -> None:
    server = cluster.serve(flags=("--log", "events.jsonl"))
    liar = Liar(cluster.port, 0)
    liar.ready(**FEATURES, samples=5)
    network.until(lambda: "client-ready" in (cluster.folder / "events.jsonl").read_text(), "its Ready")
    liar.leave()
    server.says("(?s)waiting for clients 1, 2 of 3.*waiting for clients 0, 1, 2 of 3")
    ends_well(cluster, network, server, [cluster.join(number) for number in range(3)])


def test_a_liar_that_was_first_and_stays_is_outvoted(cluster, network) -> None:
    server = cluster.serve(flags=("--log", "events.jsonl"))
    liar = Liar(cluster.port, 0)
    liar.ready(**FEATURES)
    network.until(lambda: "client-ready" in (cluster.folder / "events.jsonl").read_text(), "its Ready")
    clients = [cluster.join(number) for number in (1, 2)]
    told = liar.goodbye()
    assert "client 0's data do not fit: their shape is [20]" in told.reason
    assert told.Code.Name(told.code) == "REFUSED"
    liar.leave()
    ends_well(cluster, network, server, [cluster.join(0), *clients])


@pytest.mark.parametrize(
    "lie",
    [
        {"samples": (1 << 31) - 1},
        {"test_samples": (1 << 32) - 1},
        {"std": [0.0]},
        {"classes": 1 << 31, "class_names": []},
        {"shape": [1, 1 << 15, 1 << 15]},
    ],
    ids=lambda lie: next(iter(lie)),
)
def test_what_cannot_be_costs_the_server_nothing(cluster, network, lie: dict[str, Any]) -> None:
    server = cluster.serve()
    clients = [cluster.join(number) for number in (0, 2)]
    server.says("waiting for client 1")
    before = memory(server.pid)
    liar = Liar(cluster.port, 1)
    liar.ready(**lie)
    told = liar.goodbye()
    assert told.Code.Name(told.code) == "REFUSED"
    assert "client 1" in told.reason
    assert memory(server.pid) - before < 50
    liar.leave()
    assert server.running
    assert all(client.running for client in clients)


def test_a_repeat_offender_is_kept_away_and_the_operator_is_told(cluster, network) -> None:
    server = cluster.serve()
    clients = [cluster.join(number) for number in (0, 1)]
    server.says("waiting for client 2")
    for number in range(12):
        liar = Liar(cluster.port, 2, number)
        if liar.answer.WhichOneof("content") == "goodbye":
            break
        liar.ready()
        assert liar.hear().WhichOneof("content") == "welcome"
        # Nothing that a batch could be.
        liar.say(data=message_class("Data")(number=1, message=b"\xff"))
        assert liar.goodbye().code
        liar.leave()
        server.says(f"(?s)(?:broke the protocol.*){{{number + 1}}}going back to step 0.*waiting for client 2")
    told = liar.answer.goodbye
    assert told.Code.Name(told.code) == "LATER"
    assert "broke the protocol" in told.reason
    assert "the run cannot go on without it" in server.text
    liar.leave()
    # Whoever takes its place has to wait, too, and then the run is what it would have been.
    ends_well(cluster, network, server, [*clients, cluster.join(2)])
