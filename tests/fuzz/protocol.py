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
  weights are those of an undisturbed run, to the bit (not in mode `async`: the order of arrivals counts).
- A client that a lying server sends anything raises a CutlayerError and nothing else.
- An aggregator that a lying client sends anything raises a CutlayerError and nothing else.
- A `RemoteServer` goes on: an honest client's request is answered to the bit as before. A client's own loop
  that a lying server answers raises a CutlayerError and nothing else.
- No server can send a client's token on, in plain text, to a host that its user did not give.
"""

from __future__ import annotations

import argparse
import random
import resource
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import torch

sys.path.insert(0, str(Path(__file__).parent))

from lies import DENSE, foreign, lie  # type: ignore[import-not-found]
from lying_run import MODES, Bench, settings  # type: ignore[import-not-found]
from remote_loop import (  # type: ignore[import-not-found]
    against_connected_client,
    against_remote_server,
    sent_on,
)

from cutlayer.aggregation.robust import MeanRule
from cutlayer.aggregation.service import AggregatorService
from cutlayer.client.build import build_client
from cutlayer.errors import CutlayerError
from cutlayer.protocol.build import make_client
from cutlayer.protocol.handshake import data_spec_of, describe, digest, settings_for_clients
from cutlayer.protocol.state_bytes import to_bytes
from cutlayer.training.aggregate import _derive
from cutlayer.wire.grpc.peer import Stream
from cutlayer.wire.grpc.transport import GrpcTransport
from cutlayer.wire.messages.base import pack
from cutlayer.wire.messages.types import Gradient, Placeholder, Share, Smashed, State, SyncUp
from cutlayer.wire.policy import Policy


def against_client(bench: Bench, seed: int) -> str:
    """A server that sends a client anything: it answers, or raises a CutlayerError."""
    rng = random.Random(seed)
    mode = rng.choice(list(MODES))
    config = settings(mode, bench.folder / "client")
    data = bench.data(mode)
    half = make_client(config, bench.parts(mode))
    client = build_client(config, data, 0, half, evaluator=rng.random() < 0.5)
    for _ in range(rng.randrange(1, 6)):
        message = foreign(rng, rng.choice([0, 0, 1]))
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
    data = bench.data("parallel")
    transport = GrpcTransport(2, Policy("wait"))
    service = AggregatorService(
        transport,
        SimpleNamespace(load=lambda step: None, save=lambda step, tensors: None),
        digest=digest(settings_for_clients(config)),
        weighting="clients",
        rule=MeanRule(rng.choice(["mean", "median", "trimmed"])),
        derive=lambda clients: _derive(config, data_spec_of(clients)),
    )
    for number in range(2):
        hello = SimpleNamespace(incarnation=secrets.token_bytes(16), attempt=1, era="", received=0)
        with transport.lock:
            transport.greet(number, hello, Stream(lambda function: None))
            transport.prepared(number, describe(data, number, settings_for_clients(config)))
    service.begin(SimpleNamespace(digest=service._digest, step=0, era="e"))
    half = make_client(config, bench.parts("parallel"))
    honest = SyncUp(
        0, frame := DENSE.encode(torch.zeros_like(half.weight_vector())), Share.GRADIENTS, len(frame)
    )
    wrong = rng.choice(
        [lie(rng, honest), b"".join(pack(foreign(rng, 0))), b"\xff", b"".join(pack(Placeholder(3)))]
    )
    order = SimpleNamespace(
        number=0, epoch=0, step=0, clients=[0, 1], weights=[0.5, 0.5], recipients=[0, 1], lr=0.1,
        evaluation=rng.random() < 0.3, handover=rng.random() < 0.3,
    )  # fmt: skip
    try:
        with transport.lock:
            transport.arrived(0, memoryview(wrong))
            transport.arrived(1, memoryview(b"".join(pack(honest))))
        (service.combine if rng.random() < 0.7 else service.keep)(order)
    except CutlayerError:
        pass
    return "aggregator"


def against_server(bench: Bench, seed: int) -> str:
    """A client that sends a server anything, once in a run."""
    return str(bench.check(seed))


#: Half of all sequences are runs.
ROLES: tuple[Callable[[Bench, int], str], ...] = (
    against_server,
    against_client,
    against_server,
    against_aggregator,
    against_server,
    lambda bench, seed: str(against_remote_server(seed)),
    against_server,
    lambda bench, seed: str(against_connected_client(seed)),
    against_server,
    lambda bench, seed: str(sent_on(seed)),
)


def run(sequences: int, seed: int, tell: Callable[[str], None] = lambda text: None) -> Counter[str]:
    """All sequences of a seed. How many there were of each kind."""
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        began = time.monotonic()
        for number in range(sequences):
            own = seed * 1_000_003 + number
            counts[ROLES[number % len(ROLES)](bench, own)] += 1
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
