"""Fuzz the protocol: an admitted client, or a server, that says anything at any time.

    python tests/fuzz/protocol.py --sequences 20000 --seed 1

A sequence is a short training run with three clients: steps, evaluation and checkpoints, in a mode and under
a straggler policy that the seed chooses. One client lies in one place: its answer is damaged, repeated,
reordered, empty, of another type or step, of another shape or dtype, not finite, huge, or no answer at all.
The server is the real one (Trainer, SplitServer, boundary, membership, retransmission) on real client code;
only the sockets are left out, which have tests of their own. What must hold:

- The server's thread ends the run or goes on: no exception but those that training itself has.
- An honest client is never expelled.
- Under `drop` the run ends with the honest clients. If the liar never took part, their weights are those of
  a run without it, to the bit. Under `wait` the run waits, an honest client takes the liar's place, and the
  weights are those of an undisturbed run, to the bit.
- A client that a lying server sends anything raises a CutlayerError and nothing else.
- An aggregator that a lying client sends anything raises a CutlayerError and nothing else.
"""

from __future__ import annotations

import argparse
import copy
import random
import resource
import secrets
import struct
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from cutlayer.aggregation.robust import MeanRule
from cutlayer.aggregation.service import AggregatorService
from cutlayer.client.build import build_client
from cutlayer.client.split_client import SplitClient
from cutlayer.codecs import codec, decode
from cutlayer.codecs.frame import CHECKED_FROM
from cutlayer.config.schema import Config, load
from cutlayer.data.federated import FederatedData
from cutlayer.errors import CutlayerError, MessageError
from cutlayer.protocol.admission import Fits
from cutlayer.protocol.build import make_client, prepare_data, prepare_model
from cutlayer.protocol.handshake import data_spec_of, describe, digest, settings_for_clients
from cutlayer.protocol.state_bytes import from_bytes, to_bytes
from cutlayer.server.split_server import SplitServer
from cutlayer.split.state import server_state
from cutlayer.training.aggregate import _derive
from cutlayer.training.build import build_trainer
from cutlayer.training.serve import remote_server
from cutlayer.wire.grpc.peer import Stream
from cutlayer.wire.grpc.transport import GrpcTransport
from cutlayer.wire.messages.parse import unpack
from cutlayer.wire.messages.types import (
    TYPES,
    Gradient,
    Labels,
    Message,
    Placeholder,
    Report,
    Scores,
    Share,
    Smashed,
    State,
    Sums,
    SyncUp,
    field_names,
    pack,
)
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
#: Models are built and clients compute one at a time: PyTorch's generator and torch.fx belong to the process.
COMPUTING = threading.Lock()
DENSE = codec("dense")


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


# How answers are changed. Each takes the answers to one message and gives what is sent instead.


def _tensor(body: bytes, change: Callable[[torch.Tensor], torch.Tensor]) -> bytes:
    return DENSE.encode(change(decode(body)))


def _not_finite(body: bytes, bits: bytes) -> bytes:
    made = bytearray(DENSE.encode(torch.ones_like(decode(body))))
    made[-4:] = bits
    made[4:8] = struct.pack("<I", zlib.crc32(made[CHECKED_FROM:]))
    return bytes(made)


def _foreign(rng: random.Random, number: int) -> Message:
    kind = rng.choice(TYPES)
    values: dict[str, Any] = {}
    for name in field_names(kind):
        values[name] = {
            "number": number,
            "share": rng.choice(list(Share)),
            "evaluation": rng.random() < 0.5,
        }.get(name, rng.choice([0, 1, 7, 1 << 20]))
    if "body" in kind.__dataclass_fields__:
        values["body"] = rng.randbytes(rng.choice([0, 1, 40, 4000]))
        if "first" in values:
            values["first"] = 0
    return kind(**values)


def _state(rng: random.Random, body: bytes) -> bytes:
    state = from_bytes(body)
    name = rng.choice(sorted(state)) if state else ""
    what = rng.choice(["missing", "shape", "dtype", "nan", "huge", "more", "negative"])
    if what == "more" or not name:
        state["optimizer.0.momentum_buffer_x"] = torch.zeros(3)
    elif what == "missing":
        del state[name]
    else:
        t = state[name]
        state[name] = {
            "shape": torch.zeros(7),
            "dtype": t.to(torch.float64) if t.dtype != torch.float64 else t.to(torch.float32),
            "nan": torch.full_like(t, float("nan")) if t.is_floating_point() else t.to(torch.float32),
            "huge": torch.full_like(t, 1e30) if t.is_floating_point() else t - 5,
            "negative": -torch.ones_like(t) if "var" in name else torch.zeros(2, 2),
        }[what]
    return to_bytes(state)


def _one(rng: random.Random, message: Message) -> bytes:
    """The bytes of an answer, with something wrong that only its meaning shows."""
    joined = b"".join
    if isinstance(message, (Smashed, Gradient)):
        body = message.body
        changed = rng.choice(
            [
                lambda: _tensor(body, lambda t: t[..., :1].contiguous()),
                lambda: _tensor(body, lambda t: torch.cat([t, t])),
                lambda: _tensor(body, lambda t: t.to(torch.float64)),
                lambda: _tensor(body, lambda t: t.reshape(-1)),
                lambda: _tensor(body, lambda t: torch.full_like(t, 3e38)),
                lambda: _not_finite(body, b"\0\0\xc0\x7f"),
                lambda: _not_finite(body, b"\0\0\x80\x7f"),
                lambda: body[: len(body) // 2],
                lambda: b"",
            ]
        )()
        return joined(pack(type(message)(message.number, changed)))
    if isinstance(message, Labels):
        count, body = rng.choice(
            [(0, b""), (1 << 31, message.body), (message.count, b"\xff" * len(message.body))]
        )
        return joined(pack(Labels(message.number, body, count)))
    if isinstance(message, Report):
        bad = rng.choice([float("nan"), float("inf"), -1.0, 3e38])
        field = rng.choice(["data", "forward", "encode", "decode", "backward"])
        values = {name: getattr(message, name) for name in field_names(Report)}
        values |= {field: bad} if rng.random() < 0.7 else {"samples": rng.choice([0, 9, (1 << 32) - 1])}
        return joined(pack(Report(**values)))
    if isinstance(message, Scores):
        values = {name: getattr(message, name) for name in field_names(Scores)}
        values |= rng.choice(
            [{"loss": float("nan")}, {"top1": 1 << 31}, {"samples": 0}, {"top5": 0, "top1": 1}]
        )
        return joined(pack(Scores(**values)))
    if isinstance(message, Sums):
        sums = list(message.values)
        sums[rng.randrange(len(sums))] = rng.choice([float("nan"), float("inf"), -1.0, 1e300, 0.5])
        body = rng.choice([Sums.pack_values(sums), message.body[:-8], message.body + bytes(8), b"", b"x"])
        return joined(pack(Sums(message.number, body, rng.choice([message.samples, 0, 1 << 31]))))
    if isinstance(message, State):
        return joined(pack(State(message.number, _state(rng, message.body))))
    if isinstance(message, SyncUp):
        first, second = message.frames
        share = message.share
        if first:
            first = rng.choice(
                [
                    lambda: _tensor(first, lambda t: torch.full_like(t, 1e30)),
                    lambda: _tensor(first, lambda t: t[:-1].contiguous()),
                    lambda: _not_finite(first, b"\0\0\xc0\x7f"),
                    lambda: first[:-3],
                ]
            )()
        else:
            share = Share.GRADIENTS
        return joined(pack(SyncUp(message.number, first + second, share, len(first))))
    return b""


def mutate(rng: random.Random, answers: list[Message], silent: bool) -> list[bytes]:
    """What is sent instead of the answers; never what was asked for."""
    packed = [b"".join(pack(answer)) for answer in answers]
    kinds = ["empty", "truncate", "flip", "repeat", "foreign", "number", "one", "one", "one", "one"]
    if len(packed) > 1:
        kinds.append("swap")
    if silent:
        kinds.append("silence")
    kind = rng.choice(kinds)
    at = rng.randrange(len(packed))
    number = answers[at].number
    if kind == "empty":
        packed[at] = b""
    elif kind == "truncate":
        packed[at] = packed[at][: rng.randrange(1, 9)]
    elif kind == "flip":
        made = bytearray(packed[at])
        made[rng.randrange(9)] ^= 1 << rng.randrange(8)  # the type or the number
        packed[at] = bytes(made)
    elif kind == "repeat":
        packed.insert(0, packed[0])
    elif kind == "foreign":
        message = _foreign(rng, number + 1)
        packed[at] = b"".join(pack(message))
    elif kind == "number":
        made = bytearray(packed[at])
        made[1:9] = struct.pack("<Q", number + rng.choice([1, 1 << 40]))
        packed[at] = bytes(made)
    elif kind == "swap":
        packed.reverse()
    elif kind == "silence":
        return []
    else:
        packed[at] = _one(rng, answers[at])
    return packed


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
        found = conversation.after(cursor)
        if found is None:
            self._clients[number] = (conversation, client, cursor, sent)
            return False
        cursor, parts = found
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
        self._expected: dict[tuple[str, int | None], dict[str, torch.Tensor]] = {}
        self._count = 0

    def expected(self, mode: str, without: int | None = None) -> dict[str, torch.Tensor]:
        """The server's weights after a run that nobody disturbs; `without` one client from the start."""
        if (mode, without) not in self._expected:
            straggler = "wait" if without is None else "drop"
            self._expected[mode, without] = self.sequence(mode, straggler, None, without)[0]
        return self._expected[mode, without]

    def sequence(
        self, mode: str, straggler: str, rng: random.Random | None, without: int | None = None
    ) -> tuple[dict[str, torch.Tensor], Clients, Notes]:
        """One run; with `rng`, the liar lies once. The server's weights in the end."""
        self._count += 1
        config = settings(mode, self.folder / str(self._count))
        if mode not in self._data:
            self._data[mode] = prepare_data(config)
        data, notes = self._data[mode], Notes()
        transport = GrpcTransport(
            3,
            Policy(straggler, deadline=0.5, quorum=1),
            check=Fits(config),
            note=notes.note,  # type: ignore[arg-type]
        )
        offered = settings_for_clients(config)

        parts = prepare_model(config, data.train)[1]

        def make(number: int) -> SplitClient:
            half = make_client(config, copy.deepcopy(parts))
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
        if straggler == "wait":
            same(weights, self.expected(mode), seed)
        elif lied and clients.answered == 1 and out:
            # It never took part: nothing of it is in the weights.
            same(weights, self.expected(mode, clients.liar), seed)
        return f"{mode}, {straggler}, {clients.lied_in or 'nothing'}"


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], seed: int) -> None:
    assert a.keys() == b.keys(), f"seed {seed}"
    for name, tensor in a.items():
        assert torch.equal(tensor, b[name]), f"seed {seed}: {name} differs from the run without the liar"


def against_client(bench: Bench, seed: int) -> str:
    """A server that sends a client anything: it answers, or raises a CutlayerError."""
    rng = random.Random(seed)
    mode = rng.choice(list(MODES))
    config = settings(mode, bench.folder / "client")
    data = bench._data.setdefault(mode, prepare_data(config))
    half = make_client(config, prepare_model(config, data.train)[1])
    client = build_client(config, data, 0, half, evaluator=rng.random() < 0.5)
    for _ in range(rng.randrange(1, 6)):
        message = _foreign(rng, rng.choice([0, 0, 1]))
        if isinstance(message, (Smashed, Gradient)) and rng.random() < 0.7:
            shape = rng.choice([(8, 4, 4, 4), (8, 2, 8, 8), (1,), (8, 10)])
            message = type(message)(message.number, DENSE.encode(torch.ones(shape)))
        if isinstance(message, State) and rng.random() < 0.7:
            message = State(message.number, to_bytes({"model.layer1.conv.weight": torch.zeros(3)}))
        try:
            client.handle_from_network(message)
        except CutlayerError:
            continue
    return f"client, {mode}"


def against_aggregator(bench: Bench, seed: int) -> str:
    """A client that sends an aggregator anything, while the split server gives its orders."""
    rng = random.Random(seed)
    config = settings("parallel", bench.folder / "aggregator")
    data = bench._data.setdefault("parallel", prepare_data(config))
    transport = GrpcTransport(2, Policy("wait"))
    service = AggregatorService(
        transport,
        SimpleNamespace(load=lambda step: None, save=lambda step, tensors: None),
        digest=digest(settings_for_clients(config)),
        weighting="clients",
        rule=MeanRule(rng.choice(["mean", "median", "trimmed"])),  # type: ignore[arg-type]
        derive=lambda clients: _derive(config, data_spec_of(clients)),
    )
    for number in range(2):
        hello = SimpleNamespace(incarnation=secrets.token_bytes(16), attempt=1, era="", received=0)
        with transport.lock:
            transport.greet(number, hello, Stream(lambda function: None))
            transport.prepared(number, describe(data, number, settings_for_clients(config)))
    service.begin(SimpleNamespace(digest=service._digest, step=0, era="e"))
    half = make_client(config, prepare_model(config, data.train)[1])
    honest = SyncUp(
        0, frame := DENSE.encode(torch.zeros_like(half.weight_vector())), Share.GRADIENTS, len(frame)
    )
    lie = rng.choice(
        [_one(rng, honest), b"".join(pack(_foreign(rng, 0))), b"\xff", b"".join(pack(Placeholder(3)))]
    )
    order = SimpleNamespace(
        number=0, epoch=0, step=0, clients=[0, 1], weights=[0.5, 0.5], recipients=[0, 1], lr=0.1,
        evaluation=rng.random() < 0.3, handover=rng.random() < 0.3,
    )  # fmt: skip
    try:
        with transport.lock:
            transport.arrived(0, memoryview(lie))
            transport.arrived(1, memoryview(b"".join(pack(honest))))
        (service.combine if rng.random() < 0.7 else service.keep)(order)
    except CutlayerError:
        pass
    return "aggregator"


def run(sequences: int, seed: int, tell: Callable[[str], None] = lambda text: None) -> Counter[str]:
    """All sequences of a seed. How many there were of each kind."""
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        began = time.monotonic()
        for number in range(sequences):
            own = seed * 1_000_003 + number
            role = number % 5
            if role == 3:
                counts[against_client(bench, own)] += 1
            elif role == 4:
                counts[against_aggregator(bench, own)] += 1
            else:
                counts[bench.check(own)] += 1
            if number % 100 == 99:
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
                tell(f"{number + 1} of {sequences}, {time.monotonic() - began:.0f} s, {memory} MiB at most")
    return counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sequences", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    found = run(arguments.sequences, arguments.seed, lambda text: print(text, flush=True))
    for kind, count in sorted(found.items()):
        print(f"{count:6}  {kind}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{sum(found.values())} sequences passed, 0 failed; {peak} MiB of memory at most")
    sys.exit(0)
