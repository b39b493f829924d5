"""Time of a step of a client's own loop over gRPC, against the same loop with `CutLayer` in one process.

    python benchmarks/remote_loop.py            print the table, in about two minutes
    python benchmarks/remote_loop.py --save     and write it to benchmarks/results/remote_loop.json

Thin ResNet18, cut in the middle, random images of CIFAR-10's size, SGD on both sides. Each codec has a server
on loopback that is a process of its own. Blocks of a few steps take turns, each codec in one process and over
gRPC, so that a busy moment of the machine hits all of them; a block over the network ends with a request
without gradient, so that no work is left over. With one client the two processes mostly wait for each other.
CPU time is that of both processes together: it has what the network costs, without the waiting, and a busy
machine disturbs it little. Nothing here passes or fails; the target is printed beside the figures. Run it on
an idle machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
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
CODECS = {"none": "dense", "ms": "ms", "ems": "ems:bpe=1.0"}
TARGET = 1.15
AT_THE_CUT = (32, 16, 16)
"""The shape of one sample of smashed data, for each 16 of the width."""
Step = Callable[[], None]


def parts(width: int) -> tuple[nn.Module, nn.Module]:
    """Both halves, with the same weights wherever they are made."""
    head, body = cutlayer.cut(build("resnet18", classes=10, width=width), at="layer2")
    return head.train(), body.train()


def sgd(part: nn.Module) -> torch.optim.Optimizer:
    """As in all runs."""
    return torch.optim.SGD(part.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)


def serve(arguments: argparse.Namespace) -> None:
    """A server's process: prints its port, and at the end its CPU time behind the first block."""
    _, body = parts(arguments.width)
    optimizer = sgd(body)

    def ready(port: int) -> None:
        print(port, flush=True)

    began = 0.0
    for step in cutlayer.RemoteServer(body, "127.0.0.1:0", loss=F.cross_entropy, ready=ready):
        optimizer.step()
        optimizer.zero_grad()
        if step.update == arguments.steps:
            began = time.process_time()
    print(time.process_time() - began, flush=True)


@dataclass
class Loop:
    """A loop to be measured, and what its blocks took: seconds, and seconds of this process's CPU, a step."""

    step: Step
    settle: Step = lambda: None
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def block(self, steps: int) -> None:
        """Measure some steps."""
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(steps):
            self.step()
        self.settle()
        self.seconds.append((time.perf_counter() - began) / steps)
        self.cpu.append((time.process_time() - cpu) / steps)


@dataclass
class Contest:
    """One codec in one process and over gRPC."""

    here: Loop
    there: Loop
    server_cpu: float = 0.0

    def block(self, steps: int) -> None:
        """One block of each."""
        self.here.block(steps)
        self.there.block(steps)

    def figures(self, steps: int) -> dict[str, float]:
        """Milliseconds of a step, and the median ratio of neighbouring blocks, without the first ones."""
        pairs = list(zip(self.here.seconds[1:], self.there.seconds[1:], strict=True))
        ratios = sorted(b / a for a, b in pairs)
        edge = len(ratios) // 10
        here_cpu = statistics.fmean(self.here.cpu[1:])
        there_cpu = statistics.fmean(self.there.cpu[1:]) + self.server_cpu / (steps * len(pairs))
        return {
            "one_process_ms": 1e3 * statistics.median(a for a, _ in pairs),
            "grpc_ms": 1e3 * statistics.median(b for _, b in pairs),
            "ratio": statistics.median(ratios),
            "low": ratios[edge],
            "high": ratios[-1 - edge],
            "one_process_cpu_ms": 1e3 * here_cpu,
            "grpc_cpu_ms": 1e3 * there_cpu,
            "cpu_ratio": there_cpu / here_cpu,
        }


def training(
    head: nn.Module,
    rest: Callable[[Tensor, Tensor], Tensor],
    optimizers: list[torch.optim.Optimizer],
    images: Tensor,
    labels: Tensor,
) -> Step:
    """One step of the loop; `rest` makes the loss of smashed data and labels."""

    def step() -> None:
        loss = rest(head(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    return step


@contextmanager
def contest(codec: str, arguments: argparse.Namespace) -> Iterator[Contest]:
    """Both loops of a codec, with a server that runs until the end."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(arguments.batch, 3, 32, 32, generator=generator)
    labels = torch.randint(10, (arguments.batch,), generator=generator)
    head, body = parts(arguments.width)
    layer = cutlayer.CutLayer(codec, measure=False)
    here = training(
        head, lambda x, y: F.cross_entropy(body(layer(x)), y), [sgd(head), sgd(body)], images, labels
    )
    command = [sys.executable, str(Path(__file__)), "--serve"]
    for name in ("width", "threads", "steps"):
        command += [f"--{name}", str(getattr(arguments, name))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        if server.stdout is None:
            raise RuntimeError("no pipe")
        port = server.stdout.readline().strip()
        other, _ = parts(arguments.width)
        little = torch.zeros(1, AT_THE_CUT[0] * arguments.width // 16, *AT_THE_CUT[1:])
        with cutlayer.connect(f"127.0.0.1:{port}", codec=codec) as remote:

            def settle() -> None:
                with torch.no_grad():
                    remote.eval()(little)
                remote.train()

            both = Contest(Loop(here), Loop(training(other, remote, [sgd(other)], images, labels), settle))
            yield both
        both.server_cpu = float(server.stdout.readline())


def measure(arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    """The figures of all codecs, which take turns."""
    contests: dict[str, Contest] = {}
    with ExitStack() as servers:
        for name, codec in CODECS.items():
            contests[name] = servers.enter_context(contest(codec, arguments))
        for _ in range(1 + arguments.rounds):  # the first one warms up
            for both in contests.values():
                both.block(arguments.steps)
    return {name: both.figures(arguments.steps) for name, both in contests.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=5, help="of a block")
    parser.add_argument("--rounds", type=int, default=15, help="blocks of each kind")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.serve:
        serve(arguments)
        return
    figures = measure(arguments)
    print(
        f"{'codec':8}{'one process, ms':>17}{'gRPC, ms':>10}{'ratio':>8}{'spread':>15}{'target':>8}"
        f"{'CPU ms':>10}{'gRPC CPU ms':>13}{'ratio':>8}"
    )
    for name, found in figures.items():
        spread = f"{found['low']:.2f} to {found['high']:.2f}"
        print(
            f"{name:8}{found['one_process_ms']:17.1f}{found['grpc_ms']:10.1f}{found['ratio']:8.3f}"
            f"{spread:>15}{TARGET:8.2f}{found['one_process_cpu_ms']:10.1f}{found['grpc_cpu_ms']:13.1f}"
            f"{found['cpu_ratio']:8.3f}"
        )
    if arguments.save:
        how = {k: v for k, v in vars(arguments).items() if k not in ("save", "serve")}
        content = {"figures": figures, "how": how, "target": TARGET, "provenance": provenance(0)}
        RESULTS.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
