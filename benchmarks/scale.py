"""What many clients cost one server, as ratios measured in one run: light clients on loopback.

    python benchmarks/scale.py                  print the figures
    python benchmarks/scale.py --save           and write them to benchmarks/results/scale.json
    python benchmarks/scale.py --only sample    one part: many or sample

Each case has a server in a process of its own and its clients in two others. The clients speak the real
protocol and compute nothing (`cutlayer load`). The model is tiny and only smashed data are compressed: what
is measured is the server's work on messages. All of it takes less than two minutes on two idle cores.
Nothing here passes or fails; the targets are printed beside the figures.
"""

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cutlayer.tools.load.answers import Prepared
from cutlayer.tools.load.light_clients import LightClients
from cutlayer.wire.security.credentials import ClientSecurity

RESULTS = Path(__file__).parent / "results" / "scale.json"
Figures = dict[str, Any]


def light(port: int, numbers: list[int], prepared: Prepared) -> None:
    """A process of clients."""
    identities = [(ClientSecurity(), number) for number in numbers]
    LightClients(f"127.0.0.1:{port}", identities, prepared).run(lambda tally: None, lambda: False)


def memory() -> float:
    """Megabytes of memory that this process has now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1e3
    return 0.0


def serve(clients: int, per_step: int, steps: int, answer: Any) -> None:
    """A server, in a process of its own: sends what it has measured."""
    import torch

    from cutlayer.config.schema import load
    from cutlayer.protocol.admission import Fits
    from cutlayer.protocol.handshake import data_spec_of, settings_for_clients
    from cutlayer.server.settled_objects import settled_objects
    from cutlayer.tools.load.prepare import prepare
    from cutlayer.training.serving.remote_server import remote_server
    from cutlayer.wire.grpc.server import Listening, running
    from cutlayer.wire.grpc.transport import GrpcTransport
    from cutlayer.wire.messages.protobuf import message_class

    torch.set_num_threads(1)
    settings = [
        f"train.clients={clients}", f"train.clients_per_step={per_step}", "train.epochs=100000",
        "train.batch_size=1", "model.width=4", "train.server_batching=fused", "codec.measure=false",
        "codec.up=ems:bpe=1.0", "codec.down=none", "codec.sync=none",
    ]  # fmt: skip
    config = load(None, settings)
    offered = settings_for_clients(config)
    prepared = prepare(message_class("Offer")(settings=offered), "digits", ".", steps=1000)
    transport = GrpcTransport(clients, check=Fits(config))
    ports: list[int] = []
    context = multiprocessing.get_context("spawn")
    with running(transport, Listening("127.0.0.1:0", ready=ports.append), offered):
        began = time.perf_counter()
        workers = [
            context.Process(target=light, args=(ports[0], list(range(clients))[i::2], prepared))
            for i in range(2)
        ]
        for worker in workers:
            worker.start()
        ready = transport.assemble()
        figures: Figures = {"clients": clients, "seconds to connect": time.perf_counter() - began}
        server = remote_server(config, transport, ready, data_spec_of(ready))
        server.clients.begin(0)
        for _ in range(2):
            server.step()
        spent, walls = [], []
        with settled_objects():  # as `serve` does
            for _ in range(steps):
                cpu, wall = time.process_time(), time.perf_counter()
                taken = len(server.step().step.clients)
                spent.append(1e6 * (time.process_time() - cpu) / taken)
                walls.append(time.perf_counter() - wall)
        figures |= {
            # The mean: what comes up only every few steps costs, too.
            "microseconds of CPU a client and step": statistics.mean(spent),
            "p10": sorted(spent)[len(spent) // 10],
            "p90": sorted(spent)[-1 - len(spent) // 10],
            "seconds a step": statistics.median(walls),
            "MB of memory": memory(),
            "n": steps,
        }
        answer.send(figures)
    for worker in workers:
        worker.join(60)


def case(clients: int, per_step: int, steps: int) -> Figures:
    """The figures of one server."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(clients, per_step, steps, there))
    process.start()
    there.close()
    found: Figures = here.recv()
    process.join()
    return found


def many(arguments: argparse.Namespace) -> Figures:
    """All clients take part in every step."""
    few = case(100, 0, 10 if arguments.quick else 30)
    all_ = case(arguments.clients, 0, 4 if arguments.quick else 8)
    name = "microseconds of CPU a client and step"
    return {
        "100 clients": few,
        f"{arguments.clients} clients": all_,
        "CPU, many / 100": all_[name] / few[name],
        "targets": "connected in 60 s, 1500 MB, many / 100 at most 1.3",
    }


def sample(arguments: argparse.Namespace) -> Figures:
    """Fifty of many clients take part in each step, against a run of fifty clients."""
    few = case(50, 50, 10 if arguments.quick else 30)
    some = case(arguments.clients, 50, 10 if arguments.quick else 30)
    name = "microseconds of CPU a client and step"
    return {
        "50 of 50": few,
        f"50 of {arguments.clients}": some,
        "memory, 50 of many / 50 of 50": some["MB of memory"] / few["MB of memory"],
        "CPU, 50 of many / 50 of 50": some[name] / few[name],
        "targets": "memory at most 1.3",
    }


PARTS: dict[str, Callable[[argparse.Namespace], Figures]] = {"many": many, "sample": sample}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    arguments = parser.parse_args()
    figures = {name: PARTS[name](arguments) for name in arguments.only or PARTS}
    print(json.dumps(figures, indent=2))
    if arguments.save:
        from cutlayer.training.provenance import provenance

        before = json.loads(RESULTS.read_text())["figures"] if RESULTS.exists() else {}
        content = {
            "settings": {"clients": arguments.clients, "quick": arguments.quick},
            "figures": before | figures,
            "provenance": provenance(0),
        }
        RESULTS.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
