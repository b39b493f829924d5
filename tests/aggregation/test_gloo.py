"""Clients that exchange bytes among themselves, and means that all of them make alike."""

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from cutlayer.aggregation.among_clients import AmongClients
from cutlayer.aggregation.at_server import Aggregator
from cutlayer.aggregation.gloo import Mesh
from cutlayer.config.schema import load
from cutlayer.errors import CredentialError, CutlayerError, MessageError, RollbackError, UnreachableError
from cutlayer.protocol.plan import Step
from cutlayer.protocol.run_codecs import Crossings
from cutlayer.wire.messages.types import Combine, Share, SyncUp

CONFIG = load(
    None,
    ["train.aggregation=allreduce", "train.clients=3", "codec.sync=qu:bits=8", "codec.feedback=false"],
)


def at_once(*work: Callable[[], object]) -> list[object]:
    """What each gives, or the error that it raises."""

    def call(one: Callable[[], object]) -> object:
        try:
            return one()
        except CutlayerError as error:
            return error

    with ThreadPoolExecutor(len(work)) as pool:
        return list(pool.map(call, work))


@pytest.fixture
def clients() -> Iterator[list[AmongClients]]:
    """Three clients that have met."""
    found = [AmongClients(Mesh()) for _ in range(3)]
    devices = [SimpleNamespace(config=CONFIG, client=c, shared_sizes=(100, 0)) for c in range(3)]
    meeting, *nothing = (one.prepare(device) for one, device in zip(found, devices, strict=True))  # type: ignore[arg-type]
    assert nothing == ["", ""]
    for one, device in zip(found, devices, strict=True):
        one.begin(device, SimpleNamespace(meeting=meeting, era="first"))  # type: ignore[arg-type]
    yield found
    for one in found:
        one.close()


def share(client: int, size: int = 100) -> SyncUp:
    crossings = Crossings(CONFIG.codec, CONFIG.seed)
    vector = torch.randn(size, generator=torch.Generator().manual_seed(client))
    frame = crossings.encode(crossings.sync, vector, "sync-up", client, 1, 2)
    return SyncUp(7, frame, Share.GRADIENTS, len(frame))


def order(weights: dict[int, float], evaluation: bool = False) -> Combine:
    return Combine(7, Combine.pack_weights(weights), 1, 2, 0.1, evaluation, 1)


def test_every_client_makes_the_aggregators_mean(clients) -> None:
    # Client 1 sits this step out, but gets the mean.
    step = Step(7, 1, 2, (0, 2), (8, 4), 0.1, Share.GRADIENTS, False)
    aggregator = Aggregator(Crossings(CONFIG.codec, CONFIG.seed), "samples")
    mean = aggregator.running(step.samples)
    for client in step.clients:
        mean.add(share(client), client)
        clients[client].keep(share(client))
    weights = {0: 8 / 12, 2: 4 / 12}
    found = at_once(*(lambda one=one: one.combine(order(weights)) for one in clients))
    assert found == [mean.message(step)] * 3
    # Evaluation: exact, and for one.
    for client in step.clients:
        clients[client].keep(share(client))
    found = at_once(*(lambda one=one: one.combine(order(weights, True)) for one in clients))
    assert found == [None, mean.for_evaluation(7), None]


def test_what_cannot_be_averaged_names_its_client(clients) -> None:
    # Also if it is the first: the model says how large it has to be, and not who came before.
    for liar in (0, 2):
        for client, one in enumerate(clients):
            one.keep(share(client, size=1 if client == liar else 100))
        for error in at_once(*(lambda one=one: one.combine(order({0: 0.5, 2: 0.5})) for one in clients)):
            assert isinstance(error, MessageError)
            assert f"client {liar} shared tensors of the shapes [[1], []]" in str(error)
            assert "those of this model have [[100], []]" in str(error)
    # Client 1 has nothing to share, though the server says so.
    for error in at_once(*(lambda one=one: one.combine(order({1: 1.0})) for one in clients)):
        assert isinstance(error, MessageError)
        assert "client 1 shared nothing" in str(error)


def test_an_exchange_breaks_when_one_leaves(clients) -> None:
    for client, one in enumerate(clients):
        one.keep(share(client))
    weights = dict.fromkeys(range(3), 1 / 3)
    at_once(*(lambda one=one: one.combine(order(weights)) for one in clients))
    clients[2].close()
    errors = at_once(*(lambda one=one: one.combine(order(weights)) for one in clients[:2]))
    for error in errors:
        assert isinstance(error, RollbackError)
        assert ".cc" not in str(error)


def test_only_this_machine_can_connect() -> None:
    mesh = Mesh()
    port = int(mesh.open().removeprefix("127.0.0.1:"))
    lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    listening = {
        place for _, place, _, state, *_ in lines if state == "0A" and place.endswith(f":{port:04X}")
    }
    assert listening == {f"0100007F:{port:04X}"}
    mesh.close()


@pytest.mark.parametrize("listen", ["192.0.2.1", "192.0.2.1:7000", "[2001:db8::1]", "train.example.org"])
def test_beyond_loopback_needs_a_word(listen: str) -> None:
    with pytest.raises(CredentialError, match="--insecure"):
        Mesh(listen)
    Mesh(listen, insecure=True)


def test_others_addresses_are_checked_too() -> None:
    mesh = Mesh()
    with pytest.raises(CredentialError, match=r"will not meet other clients at 192\.0\.2\.1"):
        mesh.begin(1, 3, "192.0.2.1:7000", "era")
    with pytest.raises(UnreachableError, match="not an address"):
        mesh.begin(1, 3, "", "era")


def test_addresses_that_cannot_be() -> None:
    with pytest.raises(UnreachableError, match="give the address"):
        Mesh("0.0.0.0:1", insecure=True)
    with pytest.raises(UnreachableError, match="not an address"):
        Mesh("localhost:many")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UnreachableError, match="another program listens there"):
            Mesh(f"127.0.0.1:{taken.getsockname()[1]}").open()
