"""What the network costs, as ratios measured in one run: real processes on loopback.

    python benchmarks/network.py --root DATA            print the figures
    python benchmarks/network.py --root DATA --save     and write them to benchmarks/results/network.json
    python benchmarks/network.py --only raw             one part: raw, step, many or link

Nothing here passes or fails; the targets are printed beside the figures.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from client_processes import network_run, started  # type: ignore[import-not-found]

from cutlayer.config.schema import Config, load
from cutlayer.training.local_run import local_run
from cutlayer.training.provenance import provenance
from cutlayer.wire.grpc.transport import GrpcTransport
from cutlayer.wire.messages.types import Gradient

RESULTS = Path(__file__).parent / "results" / "network.json"
Figures = dict[str, Any]
Stepper = Callable[[], object]


def configure(arguments: argparse.Namespace, *overrides: str) -> Config:
    """The settings of a run that does not end before it is measured."""
    common = [f"data.root={arguments.root}", "train.epochs=100000", "codec.measure=false"]
    return load(None, [*common, *overrides])


def times(step: Stepper, rounds: int, warm: int = 2) -> list[float]:
    """Seconds of each step after a few that do not count."""
    found = []
    for number in range(rounds + warm):
        began = time.perf_counter()
        step()
        if number >= warm:
            found.append(time.perf_counter() - began)
    return found


def spread(values: list[float]) -> Figures:
    """Median and the middle eight tenths."""
    ordered = sorted(values)
    tenth = len(ordered) // 10
    return {"median": statistics.median(ordered), "p10": ordered[tenth], "p90": ordered[-1 - tenth]}


def raw(arguments: argparse.Namespace) -> Figures:
    """Messages of 1 MB there and back."""
    config = configure(arguments, "train.clients=1")
    transport = GrpcTransport(1)
    size = 1_000_000
    with started(config, transport, 1, "", arguments.root):
        transport.begin(0)
        message = Gradient(0, bytes(size))

        def there_and_back() -> None:
            transport.send(0, message)
            transport.receive(0)

        found = times(there_and_back, 40 if arguments.quick else 200)
    rate = spread([2 * size / seconds / 1e6 for seconds in found])
    return {"MB/s, both directions counted": rate, "target": 300, "n": len(found)}


def step(arguments: argparse.Namespace) -> Figures:
    """A step over gRPC against a step in one process: thin ResNet18, medium cut, ms."""
    config = configure(
        arguments,
        f"data.source={arguments.data}",
        "data.limit=2000",
        "model.name=resnet18",
        "model.cut=medium",
        "codec.up=ms:ratio=0.99,bits=2",
        f"train.clients={arguments.clients}",
        "train.batch_size=100",
    )
    local = local_run(config)
    with network_run(config, arguments.root, arguments.clients) as remote:
        pairs = []
        for number in range((5 if arguments.quick else 15) + 2):
            one, other = times(local.step, 1, 0)[0], times(remote.step, 1, 0)[0]
            if number >= 2:
                pairs.append((one, other))
    return {
        "gRPC / in process": spread([b / a for a, b in pairs]),
        "in process, seconds": spread([a for a, _ in pairs]),
        "target": 1.15,
        "clients": arguments.clients,
        "n": len(pairs),
    }


def many(arguments: argparse.Namespace) -> Figures:
    """CPU time of the server a message, with 10 and with 100 clients of a tiny model."""
    figures: Figures = {}
    for count in (10, 100):
        config = configure(
            arguments,
            f"train.clients={count}",
            "train.batch_size=1",
            "model.width=4",
            "train.server_batching=fused",
        )
        with network_run(config, arguments.root, 1) as server:
            for _ in range(2):
                server.step()
            steps = 4 if arguments.quick else 10
            began = time.process_time()
            for _ in range(steps):
                server.step()
            # BeginStep, Gradient, SyncDown down; Smashed, Labels, SyncUp, Report up.
            messages = 7 * count * steps
            figures[f"microseconds a message, {count} clients"] = (
                1e6 * (time.process_time() - began) / messages
            )
    ten, hundred = figures.values()
    return {**figures, "100 / 10": hundred / ten, "target": "flat"}


def link(arguments: argparse.Namespace) -> Figures:
    """Time of a step on a link at the shallow cut, ms against dense, and what the link's formula says.

    How many times shorter a step becomes depends on how long the computing takes, which compression leaves as
    it is; so beside the ratio of whole steps there is that of the time beyond computing.
    """
    rounds = 3 if arguments.quick else 6
    cases = {
        "resnet18, 100mbit": ("100mbit", [f"data.source={arguments.data}", "model.name=resnet18"]),
        "resnet18, 10mbit": ("10mbit", [f"data.source={arguments.data}", "model.name=resnet18"]),
        "tiny, 100mbit": ("100mbit", ["data.source=digits", "model.name=tiny", "train.batch_size=256"]),
    }
    return {name: _on_link(arguments, spec, model, rounds) for name, (spec, model) in cases.items()}


def _on_link(arguments: argparse.Namespace, spec: str, model: list[str], rounds: int) -> Figures:
    figures: Figures = {}
    beyond = []
    for codec in ("dense", "ms:ratio=0.99,bits=2"):
        config = configure(
            arguments,
            "data.limit=2000",
            "model.cut=shallow",
            f"codec.up={codec}",
            f"codec.down={codec}",
            "train.clients=1",
            f"train.batch_size={arguments.batch}",
            f"link.spec={spec}",
            *model,
        )
        with network_run(config, arguments.root, 1, spec) as server:
            measured, predicted, computing = [], [], []
            for number in range(rounds + 1):
                before, began = server.timeline.clock.seconds, time.perf_counter()
                result = server.step()
                if number:
                    measured.append(time.perf_counter() - began)
                    predicted.append(server.timeline.clock.seconds - before)
                    computing.append(sum(result.seconds.values()))
        figures[codec] = {
            "measured, seconds": spread(measured),
            "measured / predicted": spread([m / p for m, p in zip(measured, predicted, strict=True)]),
            "computing, seconds": spread(computing),
            "n": len(measured),
        }
        beyond.append(statistics.median(measured) - statistics.median(computing))
    dense, ms = (found["measured, seconds"]["median"] for found in figures.values())
    return {
        **figures,
        "dense / ms": dense / ms,
        "dense / ms, beyond computing": beyond[0] / beyond[1],
        "targets": "dense / ms >= 8, measured / predicted within 10 %",
    }


PARTS: dict[str, Callable[[argparse.Namespace], Figures]] = {
    "raw": raw,
    "step": step,
    "many": many,
    "link": link,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--root", default=".", help="where the data set lies")
    parser.add_argument("--clients", type=int, default=2, help="of the part `step`")
    parser.add_argument("--batch", type=int, default=64, help="of the part `link`")
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    figures = {name: PARTS[name](arguments) for name in arguments.only or PARTS}
    print(json.dumps(figures, indent=2))
    if arguments.save:
        RESULTS.parent.mkdir(exist_ok=True)
        before = json.loads(RESULTS.read_text())["figures"] if RESULTS.exists() else {}
        settings = {
            key: value for key, value in vars(arguments).items() if key not in ("root", "save", "only")
        }
        content = {"settings": settings, "figures": before | figures, "provenance": provenance(0)}
        RESULTS.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
