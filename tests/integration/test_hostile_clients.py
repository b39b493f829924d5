"""An admitted client that lies, with real processes: told why and disconnected, while the others go on."""

import importlib
import queue
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cutlayer.client.participant import Participant
from cutlayer.codecs import codec
from cutlayer.codecs.tensor_set.frame_set import join_frames, split_frames
from cutlayer.codecs.tensor_set.integers import encode_integers
from cutlayer.protocol.state_bytes import from_bytes, to_bytes
from cutlayer.wire.grpc.connection import Connection
from cutlayer.wire.messages.base import Message, layout_of, pack
from cutlayer.wire.messages.scores import Scores
from cutlayer.wire.messages.types import (
    Ask,
    Evaluate,
    Gradient,
    Labels,
    Report,
    Share,
    Smashed,
    State,
    SyncUp,
    unpack,
)
from cutlayer.wire.security.credentials import ClientSecurity

DENSE = codec("dense")
U = ["train.mode=u-shaped", 'model.cut=["layer1", "fc"]']
Lie = Callable[[Message, Message], "list[bytes] | None"]


def memory(pid: int) -> int:
    """The most memory that a process ever had, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) >> 10


class Liar(threading.Thread):
    """A client with real data and a real connection, whose answers pass a function first."""

    def __init__(self, port: int, client: int, lie: Lie, models: Any = None) -> None:
        super().__init__(daemon=True)
        self._lie = lie
        self.participant = Participant("digits", whole=True, models=models)
        self.events: queue.Queue[Any] = queue.Queue()
        self.connection = Connection(
            f"127.0.0.1:{port}", ClientSecurity(), claims=client, events=self.events, retry=5
        )
        self.told = ""
        self.start()

    def run(self) -> None:
        while True:
            event = self.events.get()
            if event.kind in ("goodbye", "lost"):
                self.told = str(event.content)
                return
            if event.kind == "offer":
                self.connection.prepared(event, self.participant.prepare(event.content))
            elif event.kind == "welcome":
                self.participant.begin(event.content)
            else:
                asked = unpack(event.content)
                for answer in self.participant.handle(asked):
                    changed = self._lie(asked, answer)
                    for data in [b"".join(pack(answer))] if changed is None else changed:
                        self.connection.send(event.conversation, (data,))

    def close(self) -> None:
        self.connection.close()
        self.join(10)


def instead(kind: type[Message], make: Callable[[Any], Message | bytes]) -> Lie:
    """Another answer in place of each of that kind."""

    def lie(asked: Message, answer: Message) -> list[bytes] | None:
        if not isinstance(answer, kind):
            return None
        made = make(answer)
        return [made if isinstance(made, bytes) else b"".join(pack(made))]

    return lie


def tensor(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Message]:
    return lambda m: type(m)(m.number, DENSE.encode(change(codec_decode(m.body))))


def codec_decode(body: bytes) -> torch.Tensor:
    import cutlayer

    return cutlayer.decode(body)


def state(change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Callable[[State], Message]:
    return lambda m: State(m.number, to_bytes(change(from_bytes(m.body))))


def report(**changes: float) -> Callable[[Report], Message]:
    return lambda m: Report(**{name: changes.get(name, getattr(m, name)) for name in layout_of(Report).names})


def sync(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[SyncUp], Message]:
    def make(m: SyncUp) -> Message:
        first, second = m.frames
        frame = DENSE.encode(change(codec_decode(first))) if first else b""
        return SyncUp(m.number, frame + second, m.share, len(frame))

    return make


# What is sent, in which settings, and what the liar is told.
LIES: dict[str, tuple[list[str], Lie, str]] = {
    "an empty message": ([], instead(Smashed, lambda m: b""), "an empty message"),
    "another trailing shape": (
        [],
        instead(Smashed, tensor(lambda t: t[..., :1].contiguous())),
        "its batch of step",
    ),
    "another type": ([], instead(Smashed, tensor(lambda t: t.double())), "torch.float64"),
    "values of 3e38": ([], instead(Smashed, tensor(lambda t: torch.full_like(t, 3e38))), "at most 1e+06"),
    "a gradient of another shape": (
        U,
        instead(Gradient, tensor(lambda t: t[:, :3].contiguous())),
        "its batch of step",
    ),
    "a report that cannot be": ([], instead(Report, report(forward=float("nan"))), "the time of forward"),
    "a report of other samples": ([], instead(Report, report(samples=2**32 - 1)), "samples"),
    "gradients of 1e30": ([], instead(SyncUp, sync(lambda t: torch.full_like(t, 1e30))), "at most 1e+06"),
    "labels of 32 MiB": (
        [],
        instead(Labels, lambda m: Labels(m.number, bytes(32 << 20), 1 << 26)),
        "bytes that nobody asked for",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_costs_the_liar_its_place_and_nobody_else_anything(cluster, name: str) -> None:
    settings, lie, reason = LIES[name]
    server = cluster.serve(*settings, flags=("--straggler", "drop", "--quorum", "2", "--deadline", "20"))
    clients = [cluster.join(number) for number in (0, 1)]
    liar = Liar(cluster.port, 2, lie)
    try:
        assert server.wait() == 0, server.text
        assert [client.wait() for client in clients] == [0, 0]
        found = re.findall(r"(client \d) broke the protocol and was disconnected: (.*)", server.text)
        assert {who for who, _ in found} == {"client 2"}
        assert all(reason in why for _, why in found), found
        assert "Traceback" not in server.text
        liar.join(20)
        assert reason in liar.told
    finally:
        liar.close()


INDEXED = """
import torch
from torch import nn

class Indexed(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.first, self.table, self.last = nn.Linear(64, 8), nn.Embedding(5, 8), nn.Linear(8, classes)

    def forward(self, x):
        x = x.flatten(1)
        return self.last(self.first(x).tanh() + self.table(x.argmax(1) % 5))
"""


def integers(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Message]:
    def make(m: Smashed) -> Message:
        frames = {name: bytes(frame) for name, frame in split_frames(m.body).items()}
        name = next(name for name in frames if not codec_decode(frames[name]).is_floating_point())
        frames[name] = encode_integers(change(codec_decode(frames[name])))
        return Smashed(m.number, join_frames(frames))

    return make


@pytest.mark.parametrize(
    ("change", "told", "batching"),
    [
        (integers(lambda t: t + 10**6), "cannot use its integers", "per_client"),
        (integers(lambda t: t + 10**6), "cannot use its integers", "fused"),
        (integers(lambda t: t.int()), "of torch.int32; its batch", "per_client"),
        (lambda m: Smashed(m.number, m.body[:4] + b"!" + m.body[5:]), "of version 33", "fused"),
    ],
)
def test_lies_among_several_tensors(
    cluster, monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Message], told: str, batching: str
) -> None:
    (cluster.folder / "indexed_nets.py").write_text(INDEXED)
    monkeypatch.syspath_prepend(cluster.folder)
    name = "indexed_nets:Indexed"
    settings = [f"model.name={name}", "model.cut=first", "train.epochs=1", "data.limit=60"]
    server = cluster.serve(
        *settings,
        f"train.server_batching={batching}",
        flags=("--straggler", "drop", "--quorum", "2", "--deadline", "20"),
    )
    module = importlib.import_module("indexed_nets")
    liar = Liar(cluster.port, 2, instead(Smashed, change), {name: module.Indexed})
    honest = [cluster.join(number, "--allow-model", name) for number in range(2)]
    try:
        assert server.wait() == 0, server.text
        assert [client.wait() for client in honest] == [0, 0]
        liar.join(20)
        assert told in liar.told
        assert "Traceback" not in server.text
    finally:
        liar.close()
        monkeypatch.delitem(sys.modules, "indexed_nets")


def only_once(lie: Lie) -> Lie:
    told = []

    def once(asked: Message, answer: Message) -> list[bytes] | None:
        changed = None if told else lie(asked, answer)
        if changed is not None:
            told.append(changed)
        return changed

    return once


def when(kind: type[Message], lie: Lie) -> Lie:
    """The lie in answer to that kind of message alone."""
    return lambda asked, answer: lie(asked, answer) if isinstance(asked, kind) else None


EVALUATIONS: dict[str, tuple[list[str], Lie]] = {
    "another type of message": ([], when(Evaluate, instead(Smashed, lambda m: Gradient(m.number, m.body)))),
    "another shape": ([], when(Evaluate, instead(Smashed, tensor(lambda t: t[:3].contiguous())))),
    "labels that cannot be": ([], when(Evaluate, instead(Labels, lambda m: Labels(m.number, b"", 0)))),
    "scores that cannot be": (U, instead(Scores, lambda m: Scores(m.number, m.samples, float("nan"), 0, 0))),
    "buffers of another share": (
        [],
        when(Ask, instead(SyncUp, lambda m: SyncUp(m.number, m.body, Share.GRADIENTS, m.first))),
    ),
    "silence": ([], when(Evaluate, lambda asked, answer: [])),
}


@pytest.mark.parametrize("name", EVALUATIONS)
def test_a_liar_in_evaluation_is_replaced_and_the_honest_do_not_pay(cluster, name: str) -> None:
    settings, lie = EVALUATIONS[name]
    server = cluster.serve(*settings, flags=("--straggler", "drop", "--quorum", "2", "--deadline", "3"))
    # Client 0 would be the evaluator; another one that has a test set takes over.
    liar = Liar(cluster.port, 0, lie)
    clients = [cluster.join(number) for number in (1, 2)]
    try:
        assert server.wait() == 0, server.text
        assert [client.wait() for client in clients] == [0, 0], server.text
        assert not re.search(r"client [12] (broke|did not answer)", server.text)
        assert re.search(r"client 0 (broke the protocol|did not answer)", server.text)
        scored = [r["accuracy"] for r in cluster.records() if r["kind"] == "epoch"]
        assert scored[-1] is not None
    finally:
        liar.close()


STATES: dict[str, Lie] = {
    "a tensor is missing": instead(State, state(lambda s: {k: t for k, t in s.items() if "conv" not in k})),
    "an optimizer entry that cannot be": instead(
        State, state(lambda s: {**s, "optimizer.999.momentum_buffer": torch.zeros(3)})
    ),
    "not finite": instead(State, state(lambda s: {k: t * float("nan") for k, t in s.items()})),
    "damaged": instead(State, lambda m: State(m.number, m.body[:-20])),
    "not a state": instead(State, lambda m: Gradient(m.number, b"")),
}


@pytest.mark.parametrize("name", STATES)
def test_a_poisoned_state_is_never_stored(cluster, network, name: str) -> None:
    """Clients have weights of their own (sync = 3), so the state of each is asked for."""
    settings = ["train.sync=3", "train.checkpoint_every=4"]
    server = cluster.serve(*settings, flags=("--straggler", "drop", "--quorum", "2", "--deadline", "20"))
    clients = [cluster.join(number) for number in (0, 1)]
    liar = Liar(cluster.port, 2, STATES[name])
    try:
        assert server.wait() == 0, server.text
        assert [client.wait() for client in clients] == [0, 0]
        assert re.search("client 2 broke the protocol", server.text)
        kept = network.checkpoint.latest(cluster.folder / "net" / "checkpoints")
        assert kept is not None
        assert all(bool(torch.isfinite(t).all()) for t in kept.tensors.values() if t.is_floating_point())
        # What was stored can be resumed: it is complete, and there is nothing left to do.
        again = cluster.serve(*settings, flags=("--resume",))
        assert again.wait() == 0, again.text
    finally:
        liar.close()


def test_one_that_says_that_training_diverged_does_not_end_it(cluster) -> None:
    server = cluster.serve("train.epochs=3", flags=("--straggler", "drop", "--quorum", "2"))
    clients = [cluster.join(number) for number in (0, 1)]
    liar = Liar(cluster.port, 2, lambda asked, answer: [])
    try:
        server.says("waiting for client")
        liar.connection.failed("NaN everywhere", diverged=True)
        assert server.wait() == 0, server.text
        assert [client.wait() for client in clients] == [0, 0]
    finally:
        liar.close()


def test_messages_that_nobody_asked_for_cost_little_memory(cluster) -> None:
    server = cluster.serve("train.epochs=2000", flags=("--straggler", "drop", "--quorum", "2"))
    clients = [cluster.join(number) for number in (0, 1)]
    flood = Liar(cluster.port, 2, lambda asked, answer: [b"".join(pack(Smashed(0, bytes(100 << 20))))] * 6)
    try:
        before = memory(server.pid)
        server.says("client 2 broke the protocol and was disconnected: .*")
        assert memory(server.pid) < 1.3 * before + 256
        assert all(client.running for client in clients)
    finally:
        flood.close()
