"""Time of a step of a client's own loop over gRPC, against the same loop with `CutLayer` in one process.

    python benchmarks/remote_loop.py            print the table
    python benchmarks/remote_loop.py --save     and write it to benchmarks/results/remote_loop.json

Thin ResNet18, cut in the middle, random images of CIFAR-10's size, SGD on both sides. The server is a process
of its own on loopback. Blocks of a few steps of both kinds take turns, so that a busy moment of the machine
hits both; a block over the network ends with a request without gradient, so that no work is left over. With
one client the two processes mostly wait for each other. Nothing here passes or fails; the target is printed
beside the figures. Run it on an idle machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

# Threads of two processes that share the cores must not spin while they wait. Before PyTorch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import cutlayer
from cutlayer.models import build
from cutlayer.training.provenance import provenance

RESULTS = Path(__file__).parent / "results" / "remote_loop.json"
CODECS = ("dense", "ems:bpe=1.0")
TARGET = 1.15


def parts(width: int) -> tuple[nn.Module, nn.Module]:
    """Both halves, with the same weights wherever they are made."""
    head, body = cutlayer.cut(build("resnet18", classes=10, width=width), at="layer2")
    return head.train(), body.train()


def sgd(part: nn.Module) -> torch.optim.Optimizer:
    """As in all runs."""
    return torch.optim.SGD(part.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)


def serve(width: int, threads: int) -> None:
    """The server's process: prints its port, and ends when the client leaves."""
    torch.set_num_threads(threads)
    _, body = parts(width)

    def ready(port: int) -> None:
        print(port, flush=True)

    cutlayer.RemoteServer(body, "127.0.0.1:0", loss=F.cross_entropy, optimizer=sgd(body), ready=ready).run()


def training(
    head: nn.Module,
    rest: Callable[[Tensor, Tensor], Tensor],
    optimizers: list[torch.optim.Optimizer],
    images: Tensor,
    labels: Tensor,
) -> Callable[[], None]:
    """One step of the loop; `rest` makes the loss of smashed data and labels."""

    def step() -> None:
        loss = rest(head(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    return step


def measure(codec: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Milliseconds a step of both, and the median ratio of neighbouring blocks."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(arguments.batch, 3, 32, 32, generator=generator)
    labels = torch.randint(10, (arguments.batch,), generator=generator)
    head, body = parts(arguments.width)
    layer = cutlayer.CutLayer(cutlayer.codec(codec), measure=False)
    here = training(
        head, lambda x, y: F.cross_entropy(body(layer(x)), y), [sgd(head), sgd(body)], images, labels
    )
    command = [sys.executable, __file__, "--serve", "--width", str(arguments.width)]
    with subprocess.Popen(
        [*command, "--threads", str(arguments.threads)], stdout=subprocess.PIPE, text=True
    ) as server:
        port = server.stdout.readline().strip() if server.stdout else ""
        other, _ = parts(arguments.width)
        with cutlayer.connect(f"127.0.0.1:{port}", codec=codec) as remote:
            there = training(other, remote, [sgd(other)], images, labels)
            little = torch.zeros(1, 32, 16, 16)

            def block(step: Callable[[], None], settle: bool) -> float:
                began = time.perf_counter()
                for _ in range(arguments.steps):
                    step()
                if settle:
                    with torch.no_grad():
                        remote.eval()(little)
                    remote.train()
                return (time.perf_counter() - began) / float(arguments.steps)

            block(here, False)
            block(there, True)
            pairs = [(block(here, False), block(there, True)) for _ in range(arguments.rounds)]
    ratios = sorted(b / a for a, b in pairs)
    edge = len(ratios) // 10
    return {
        "one_process_ms": 1e3 * statistics.median(a for a, _ in pairs),
        "grpc_ms": 1e3 * statistics.median(b for _, b in pairs),
        "ratio": statistics.median(ratios),
        "low": ratios[edge],
        "high": ratios[-1 - edge],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=5, help="of a block")
    parser.add_argument("--rounds", type=int, default=20, help="blocks of each kind")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.width, arguments.threads)
        return
    torch.set_num_threads(arguments.threads)
    print(f"{'codec':14}{'one process, ms':>18}{'gRPC, ms':>12}{'ratio':>8}{'spread':>16}{'target':>8}")
    figures = {}
    for codec in CODECS:
        found = figures[codec] = measure(codec, arguments)
        spread = f"{found['low']:.2f} to {found['high']:.2f}"
        print(
            f"{codec:14}{found['one_process_ms']:18.1f}{found['grpc_ms']:12.1f}{found['ratio']:8.3f}"
            f"{spread:>16}{TARGET:8.2f}"
        )
    if arguments.save:
        how = {k: v for k, v in vars(arguments).items() if k not in ("save", "serve")}
        content = {"figures": figures, "how": how, "target": TARGET, "provenance": provenance(0)}
        RESULTS.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
