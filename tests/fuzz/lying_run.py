"""The runs of the protocol fuzzer: a real server and real clients in one process, one of whom lies once."""

from __future__ import annotations

import copy
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import torch
from clients import COMPUTING, Clients  # type: ignore[import-not-found]
from lies import lies_of_data, mutate  # type: ignore[import-not-found]
from packets import damage  # type: ignore[import-not-found]

from cutlayer.client.build import build_client
from cutlayer.client.split_client import SplitClient
from cutlayer.config.schema import Config, load
from cutlayer.data.federated import FederatedData
from cutlayer.models import ANY_MODEL
from cutlayer.protocol.admission import Fits
from cutlayer.protocol.build import make_client, prepare_data, prepare_model
from cutlayer.protocol.handshake import data_spec_of, describe, settings_for_clients
from cutlayer.server.split_server import SplitServer
from cutlayer.split.part import Part
from cutlayer.split.state import server_state
from cutlayer.training.build import build_trainer
from cutlayer.training.serving.remote_server import remote_server
from cutlayer.wire.grpc.transport import GrpcTransport
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
    "sampled": ["train.clients_per_step=2"],
    "sampled, sync 2": ["train.clients_per_step=2", "train.sync=2"],
    "elastic": ["train.clients_per_step=3"],
    "several": ["model.name=several_nets:Branches", "model.cut=right"],
    "several, fused": ["model.name=several_nets:Masked", "model.cut=first", "train.server_batching=fused"],
    "regression": ["data.target=price", "model.name=mlp", "model.width=4", "model.cut=shallow"],
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
#: Seconds in which an honest client answers, also on a busy machine; and in which a sequence ends.
DEADLINE, PATIENCE = 10.0, 120.0
# Models whose cuts carry several tensors are there.
sys.path.append(str(Path(__file__).parents[1]))


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
    if mode.startswith("several"):
        common.remove("model.width=2")
    if mode == "regression":
        folder.parent.mkdir(parents=True, exist_ok=True)
        table = folder.parent / "houses.csv"
        rows = [f"{i % 7},{i * i % 11},{(i % 7) * 2 + i * i % 11}" for i in range(60)]
        table.write_text("\n".join(["a,b,price", *rows]) + "\n")
        common.append(f"data.source={table}")
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
            config = settings(mode, self.folder / "data")
            self._parts[mode] = prepare_model(config, self.data(mode).train, ANY_MODEL)[1]
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
        elastic = mode == "elastic" and straggler == "drop"
        fits = Fits(config, elastic=elastic)
        transport = GrpcTransport(
            3,
            Policy(straggler, deadline=DEADLINE, quorum=1, elastic=elastic),
            check=fits,
            note=notes.note,  # type: ignore[arg-type]
            interrupted=lambda: time.monotonic() > end,
        )
        offered = settings_for_clients(config)

        def make(number: int) -> SplitClient:
            half = make_client(config, self.parts(mode))
            return build_client(config, data, number, half, evaluator=True)

        def make_server() -> SplitServer:
            with COMPUTING:
                return remote_server(config, transport, ready, spec)

        clients = Clients(transport, make, lambda number: describe(data, number, offered))
        if rng is not None:
            clients.liar = rng.choice([0, 2])  # the first one is the evaluator
            clients.lie_at = rng.randrange(8)
            clients.lie = lambda answers: (
                damage(rng, answers)
                if rng.random() < 0.25
                else mutate(rng, answers, silent=straggler == "drop")
            )
        if elastic and without is None:
            clients.late = 2
            clients.lies_of_data = [] if rng is None else lies_of_data(rng)
        for number in range(3):
            if number != clients.late:
                clients.come(number)
        ready = transport.assemble(None if clients.late is None else 2)
        spec = data_spec_of(ready)
        fits.settle(spec)
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
        if mode == "async" or (mode == "elastic" and straggler == "drop"):
            pass  # which answer or client comes first decides, and the network decides which does
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
