"""Clients that exchange bytes among themselves, and means that all of them make alike."""

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from cutlayer.aggregation.at_server import RunningMean
from cutlayer.aggregation.client_exchange import AllGather, AllReduce, ClientExchange
from cutlayer.aggregation.gloo import Gloo
from cutlayer.config.schema import load
from cutlayer.errors import CredentialError, CutlayerError, MessageError, RollbackError, UnreachableError
from cutlayer.protocol.build import make_codecs
from cutlayer.protocol.plan import Place
from cutlayer.protocol.run_codecs import RunCodecs
from cutlayer.wire.messages.types import Combine, Share, SyncUp

CONFIG = load(
    None,
    ["train.aggregation=allgather", "train.clients=3", "codec.sync=qu:bits=8", "codec.feedback=false"],
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


CODECS = make_codecs(CONFIG, (100, 0), 100)


@contextmanager
def met(kind: type[ClientExchange], codecs: RunCodecs) -> Iterator[list[ClientExchange]]:
    """Three clients that have met."""
    found = [kind(Gloo(), client, 3) for client in range(3)]
    rendezvous, *nothing = (one.rendezvous() for one in found)
    assert nothing == ["", ""]
    for one in found:
        one.begin(codecs, rendezvous, "first")
    yield found
    for one in found:
        one.close()


@pytest.fixture
def clients() -> Iterator[list[ClientExchange]]:
    """Three clients that gather what they share."""
    with met(AllGather, CODECS) as found:
        yield found


def share(client: int, size: int = 100) -> SyncUp:
    vector = torch.randn(size, generator=torch.Generator().manual_seed(client))
    frame = CODECS.encode(CODECS.sync, vector, "sync-up", client, 1, 2)
    return SyncUp(7, frame, Share.GRADIENTS, len(frame))


def order(weights: dict[int, float], evaluation: bool = False) -> Combine:
    return Combine(7, Combine.pack_weights(weights), 1, 2, 0.1, evaluation, 1)


def test_every_client_makes_the_aggregators_mean(clients) -> None:
    # Client 1 sits this step out, but gets the mean.
    weights = {0: 8 / 12, 2: 4 / 12}
    mean = RunningMean(CODECS, list(weights.values()))
    for client in weights:
        mean.add(client, share(client))
        clients[client].keep(share(client))
    found = at_once(*(lambda one=one: one.combine(order(weights)) for one in clients))
    assert found == [mean.message(Place(7, 1, 2, 0.1))] * 3
    # Evaluation: exact, and for one.
    for client in weights:
        clients[client].keep(share(client))
    found = at_once(*(lambda one=one: one.combine(order(weights, True)) for one in clients))
    assert found == [None, mean.exact(7), None]


def test_an_all_reduce_agrees_with_the_mean_to_rounding() -> None:
    plain = make_codecs(load(None, ["codec.sync=none"]), (100, 3), 103)

    def weights_of(client: int) -> SyncUp:
        drawn = torch.Generator().manual_seed(client)
        frames = [plain.plain(torch.randn(size, generator=drawn)) for size in (100, 3)]
        return SyncUp(7, b"".join(frames), Share.WEIGHTS, len(frames[0]))

    weights = {0: 8 / 12, 2: 4 / 12}
    mean = RunningMean(plain, list(weights.values()))
    with met(AllReduce, plain) as clients:
        # Client 1 sits this step out, does not know what is shared, and gets the mean.
        for client in weights:
            mean.add(client, weights_of(client))
            clients[client].keep(weights_of(client))
        found = at_once(*(lambda one=one: one.combine(order(weights)) for one in clients))
        expected = mean.message(Place(7, 1, 2, 0.1))
        assert found[0] == found[1] == found[2]
        assert (found[0].number, found[0].share, found[0].lr) == (7, Share.WEIGHTS, 0.1)
        for ours, theirs in zip(found[0].frames, expected.frames, strict=True):
            torch.testing.assert_close(plain.decode(ours), plain.decode(theirs))
        # Clients that share different things break no sum: all are told.
        clients[0].keep(weights_of(0))
        frame = plain.plain(torch.zeros(100))
        clients[2].keep(SyncUp(7, frame, Share.GRADIENTS, len(frame)))
        for error in at_once(*(lambda one=one: one.combine(order(weights)) for one in clients)):
            assert isinstance(error, MessageError)
            assert "some clients share WEIGHTS, others GRADIENTS" in str(error)


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
    gloo = Gloo()
    port = int(gloo.open().removeprefix("127.0.0.1:"))
    lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    listening = {
        place for _, place, _, state, *_ in lines if state == "0A" and place.endswith(f":{port:04X}")
    }
    assert listening == {f"0100007F:{port:04X}"}
    gloo.close()


@pytest.mark.parametrize("listen", ["192.0.2.1", "192.0.2.1:7000", "[2001:db8::1]", "train.example.org"])
def test_beyond_loopback_needs_a_word(listen: str) -> None:
    with pytest.raises(CredentialError, match="--insecure"):
        Gloo(listen)
    Gloo(listen, insecure=True)


def test_others_addresses_are_checked_too() -> None:
    gloo = Gloo()
    with pytest.raises(CredentialError, match=r"will not meet other clients at 192\.0\.2\.1"):
        gloo.begin(1, 3, "192.0.2.1:7000", "era")
    with pytest.raises(UnreachableError, match="not an address"):
        gloo.begin(1, 3, "", "era")


def test_addresses_that_cannot_be() -> None:
    with pytest.raises(UnreachableError, match="give the address"):
        Gloo("0.0.0.0:1", insecure=True)
    with pytest.raises(UnreachableError, match="not an address"):
        Gloo("localhost:many")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UnreachableError, match="another program listens there"):
            Gloo(f"127.0.0.1:{taken.getsockname()[1]}").open()
