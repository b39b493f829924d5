"""The runs of the protocol fuzzer: a real server and real clients in one process, one of whom lies once."""

from __future__ import annotations

import copy
import random
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from lies import mutate  # type: ignore[import-not-found]

from cutlayer.client.build import build_client
from cutlayer.client.split_client import SplitClient
from cutlayer.config.schema import Config, load
from cutlayer.data.federated import FederatedData
from cutlayer.errors import MessageError
from cutlayer.protocol.admission import Fits
from cutlayer.protocol.build import make_client, prepare_data, prepare_model
from cutlayer.protocol.handshake import data_spec_of, describe, settings_for_clients
from cutlayer.server.split_server import SplitServer
from cutlayer.split.part import Part
from cutlayer.split.state import server_state
from cutlayer.training.build import build_trainer
from cutlayer.training.serving.remote_server import remote_server
from cutlayer.wire.grpc.peer import Stream
from cutlayer.wire.grpc.transport import GrpcTransport
from cutlayer.wire.messages.base import Message, pack
from cutlayer.wire.messages.types import unpack
from cutlayer.wire.policy import Policy

U = ["train.mode=u-shaped", 'model.cut=["layer1", "fc"]']
MODES: dict[str, list[str]] = {
    "parallel": [],
    "fused": ["train.server_batching=fused"],
    "sequential": ["train.mode=sequential"],
    "relay": ["train.mode=relay"],
    "u-shaped": U,
    "u-fused": [*U, "train.server_batching=fused"],
    "sync 2": ["train.sync=2"],
    "async": ["train.mode=async", "train.buffer=2"],
    "feedback": ["codec.sync=qu:bits=8"],
    "language": [
        *(
            "data.context=8",
            "model.name=gpt",
            "model.blocks=2",
            "model.heads=2",
            'model.cut=["block1", "fc"]',
        ),
        "train.mode=u-shaped",
    ],
}
NEVER = 1 << 30
#: Seconds in which an honest client answers, also on a busy machine; and in which a sequence ends.
DEADLINE, PATIENCE = 10.0, 120.0
#: Models are built and clients compute one at a time: PyTorch's generator and torch.fx belong to the process.
COMPUTING = threading.Lock()


def settings(mode: str, folder: Path) -> Config:
    common = [
        f"output.dir={folder}",
        "output.tensorboard=false",
        "model.width=2",
        "data.limit=48",
        "train.clients=3",
        "train.epochs=1",
        "train.batch_size=8",
        "train.lr=0.05",
        "train.checkpoint_every=1",
        "codec.up=qu:bits=8",
    ]
    if mode == "language":
        folder.parent.mkdir(parents=True, exist_ok=True)
        text = folder.parent / "book.txt"
        text.write_text("".join(chr(97 + (5 * i + i // 9) % 13) for i in range(700)))
        common.append(f"data.source=text:{text}")
    return load(None, [*common, *MODES[mode]])


class Notes:
    """A display that keeps what an operator would read."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


class Clients(threading.Thread):
    """All clients of a sequence, on a thread of their own, behind the server's real conversations."""

    def __init__(
        self, transport: GrpcTransport, make: Callable[[int], SplitClient], ready: Callable[[int], Any]
    ) -> None:
        super().__init__(daemon=True)
        self.transport, self.make, self.ready = transport, make, ready
        self.liar = 2
        self.lie: Callable[[list[Message]], list[bytes] | None] | None = None
        self.lie_at = NEVER
        self.lied_in = ""
        self.answered = 0
        self.error: BaseException | None = None
        self.over = threading.Event()
        self._clients: dict[int, tuple[Any, SplitClient, int, int]] = {}

    def come(self, number: int) -> None:
        """A client connects, begins anew, and has its data."""
        hello = SimpleNamespace(incarnation=secrets.token_bytes(16), attempt=1, era="", received=0)
        with self.transport.lock:
            self.transport.greet(number, hello, Stream(lambda function: None))
            self.transport.prepared(number, self.ready(number))

    def run(self) -> None:
        try:
            while not self.over.is_set():
                if not any(self._serve(number) for number in range(self.transport.clients)):
                    time.sleep(0.0005)
        except BaseException as error:  # the harness itself broke: the sequence has failed
            self.error = error

    def _serve(self, number: int) -> bool:
        with self.transport.lock:
            peer = self.transport.peers[number]
            conversation, stream = peer.conversation, peer.stream
        if stream is None and self.transport.patient:
            # Whoever was sent away, or has to come again: an honest process comes in its place.
            self.lie_at = NEVER if number == self.liar else self.lie_at
            self.come(number)
            return True
        if conversation is None:
            return False
        held = self._clients.get(number)
        if held is None or held[0] is not conversation:
            held = (conversation, self.make(number), 0, 0)
        _, client, cursor, sent = held
        found = next(iter(conversation.batch(cursor, several=False)), None)
        if found is None:
            self._clients[number] = (conversation, client, cursor, sent)
            return False
        cursor, parts = found.number, found.parts
        with COMPUTING:
            answers = list(client.handle(unpack(b"".join(parts))))
        out = [b"".join(pack(answer)) for answer in answers]
        if answers and number == self.liar:
            self.answered += 1
            if self.answered > self.lie_at and self.lie is not None:
                changed = self.lie(answers)
                if changed is not None:
                    self.lied_in, self.lie = type(answers[0]).__name__, None
                    out = changed
        for data in out:
            sent += 1
            with self.transport.lock:
                try:
                    message = conversation.accept(sent, cursor, memoryview(data))
                    if message is not None and peer.conversation is conversation:
                        self.transport.arrived(number, message)
                except MessageError as error:
                    if peer.conversation is conversation:
                        self.transport.expel(number, str(error))
        with self.transport.lock:
            conversation.confirm(cursor)
        self._clients[number] = (conversation, client, cursor, sent)
        return True


class Bench:
    """Data and weights of undisturbed runs, made once for each mode."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._data: dict[str, FederatedData] = {}
        self._parts: dict[str, tuple[Part, ...]] = {}
        self._expected: dict[tuple[str, int | None], dict[str, torch.Tensor]] = {}
        self._count = 0

    def data(self, mode: str) -> FederatedData:
        """The data of a mode's runs."""
        if mode not in self._data:
            self._data[mode] = prepare_data(settings(mode, self.folder / "data"))
        return self._data[mode]

    def parts(self, mode: str) -> tuple[Part, ...]:
        """A model as a client of the mode gets it."""
        if mode not in self._parts:
            self._parts[mode] = prepare_model(settings(mode, self.folder / "data"), self.data(mode).train)[1]
        return copy.deepcopy(self._parts[mode])

    def expected(self, mode: str, without: int | None = None) -> dict[str, torch.Tensor]:
        """The server's weights after a run that nobody disturbs; `without` one client from the start."""
        if (mode, without) not in self._expected:
            straggler = "wait" if without is None else "drop"
            weights, _, notes = self.sequence(mode, straggler, None, without)
            late = [line for line in notes.lines if "did not answer" in line]
            assert not late, f"this machine is too busy: {late}"
            self._expected[mode, without] = weights
        return self._expected[mode, without]

    def sequence(
        self, mode: str, straggler: str, rng: random.Random | None, without: int | None = None
    ) -> tuple[dict[str, torch.Tensor], Clients, Notes]:
        """One run; with `rng`, the liar lies once. The server's weights in the end."""
        self._count += 1
        config = settings(mode, self.folder / str(self._count))
        data, notes = self.data(mode), Notes()
        end = time.monotonic() + PATIENCE  # a run that waits for ever ends in KeyboardInterrupt
        transport = GrpcTransport(
            3,
            Policy(straggler, deadline=DEADLINE, quorum=1),
            check=Fits(config),
            note=notes.note,  # type: ignore[arg-type]
            interrupted=lambda: time.monotonic() > end,
        )
        offered = settings_for_clients(config)

        def make(number: int) -> SplitClient:
            half = make_client(config, self.parts(mode))
            return build_client(config, data, number, half, evaluator=True)

        def make_server() -> SplitServer:
            with COMPUTING:
                return remote_server(config, transport, ready, data_spec_of(ready))

        clients = Clients(transport, make, lambda number: describe(data, number, offered))
        if rng is not None:
            clients.liar = rng.choice([0, 2])  # the first one is the evaluator
            clients.lie_at = rng.randrange(8)
            clients.lie = lambda answers: mutate(rng, answers, silent=straggler == "drop")
        for number in range(3):
            clients.come(number)
        ready = transport.assemble()
        trainer = build_trainer(config, make_server, notes)  # type: ignore[arg-type]
        if without is not None:
            clients.liar, clients.lie_at, clients.lie = without, 0, lambda answers: [b""]
        clients.start()
        try:
            trainer.begin(False)
            trainer.complete(SimpleNamespace(requested=False))  # type: ignore[arg-type]
            weights = {name: t.clone() for name, t in server_state(trainer.server.half).items()}
            return weights, clients, notes
        finally:
            clients.over.set()
            clients.join(10)
            trainer.close()
            if clients.error is not None:
                raise clients.error

    def check(self, seed: int) -> str:
        """One sequence of a client against the server. Which mode and phase it was."""
        rng = random.Random(seed)
        straggler = rng.choice(["wait", "drop"])
        mode = rng.choice([name for name in MODES if straggler == "wait" or name != "relay"])
        weights, clients, notes = self.sequence(mode, straggler, rng)
        out = [line for line in notes.lines if "disconnected" in line or "did not answer" in line]
        assert all(f"client {clients.liar}" in line for line in out), f"seed {seed}: the honest pay: {out}"
        assert not any("Traceback" in line for line in notes.lines)
        for name, tensor in weights.items():
            assert bool(torch.isfinite(tensor.float()).all()), f"seed {seed}: {name} is not finite"
        lied = bool(clients.lied_in)
        if mode == "async":
            pass  # which answer comes first decides, and the network decides which does
        elif straggler == "wait":
            same(weights, self.expected(mode), seed)
        elif lied and clients.answered == 1 and out:
            # It never took part: nothing of it is in the weights.
            same(weights, self.expected(mode, clients.liar), seed)
        return f"{mode}, {straggler}, {clients.lied_in or 'nothing'}"


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], seed: int) -> None:
    assert a.keys() == b.keys(), f"seed {seed}"
    for name, tensor in a.items():
        assert torch.equal(tensor, b[name]), f"seed {seed}: {name} differs from the run without the liar"
