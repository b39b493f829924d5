"""Time of a training step, as ratios to plain unsplit PyTorch in the same run.

    python benchmarks/training.py --root DATA            print the table
    python benchmarks/training.py --root DATA --save     and write it to benchmarks/results/training.json
    python benchmarks/training.py --root DATA --cpu --against "10 clients, dense, per_client"
                                                         what codecs cost, in CPU time, on a machine in use

Thin ResNet18 on CIFAR-10, cut in the middle, the same number of samples a step everywhere. Steps of all kinds
take turns, so that a busy moment of the machine hits all of them. Nothing here passes or fails; the targets
are printed beside the figures.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional as F

from cutlayer.config.schema import load
from cutlayer.data import Dataset, Sampler
from cutlayer.protocol.build import optimizer_maker, prepare_model
from cutlayer.training.local_run import LocalRun, local_run
from cutlayer.training.provenance import provenance

RESULTS = Path(__file__).parent / "results" / "training.json"

# What is measured: settings, and the largest ratio that is good enough.
KINDS: dict[str, tuple[list[str], float | None]] = {
    "1 client, dense": (["train.clients=1", "codec.up=none"], 1.10),
    "1 client, ms": (["train.clients=1", "codec.up=ms:ratio=0.99,bits=2"], 1.15),
    "10 clients, dense, per_client": (["train.clients=10", "codec.up=none"], 1.4),
    "10 clients, dense, fused": (["train.clients=10", "codec.up=none", "train.server_batching=fused"], 1.2),
    "10 clients, ms, per_client": (["train.clients=10", "codec.up=ms:ratio=0.99,bits=2"], None),
    "10 clients, ems, per_client": (["train.clients=10", "codec.up=ems:bpe=1.0"], None),
    "10 clients, ems auto, per_client": (["train.clients=10", "codec.up=ems:bpe=1.0,transform=auto"], None),
}


def run(arguments: argparse.Namespace, overrides: list[str]) -> LocalRun:
    """A run whose clients' batches make `batch` samples together."""
    clients = 10 if "train.clients=10" in overrides else 1
    return local_run(
        load(
            None,
            [
                f"model.name={arguments.model}",
                f"model.width={arguments.width}",
                f"data.source={arguments.data}",
                f"data.root={arguments.root}",
                f"data.limit={50 * arguments.batch}",
                f"train.batch_size={arguments.batch // clients}",
                "train.epochs=100000",
                *overrides,
            ],
        )
    )


def plain(like: LocalRun) -> Callable[[], object]:
    """A step of unsplit training on the same data, with the same augmentation and optimizer."""
    config, data = like.config, like.data
    train = data.train
    assert isinstance(train, Dataset)
    model = prepare_model(config, data.train)[0].train()
    optimizer = optimizer_maker(config.train)(list(model.parameters()))
    sampler = Sampler(data.parts[0], config.train.batch_size, seed=config.seed, client=0)
    number = iter(range(1 << 40))

    def step() -> float:
        epoch, place = divmod(next(number), len(sampler))
        indices = sampler.batch(epoch, place)
        images = data.augment.train(train.images[indices], seed=0, client=0, epoch=epoch, step=place)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), train.labels[indices])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return float(loss.detach())

    return step


def measure(
    steps: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Seconds of each step; the first two rounds warm up and do not count."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + 2):
        for name, step in steps.items():
            began = clock()
            step()
            if number >= 2:
                times[name].append(clock() - began)
    return times


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--root", default=".", help="where the data set lies")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch", type=int, default=160, help="samples a step, of all clients together")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cpu", action="store_true", help="CPU time, which other programs disturb little")
    parser.add_argument("--against", default="plain PyTorch", help="the kind of step that ratios are to")
    parser.add_argument("--only", default="", help="leave out kinds of steps whose name has not these words")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    steps: dict[str, Callable[[], object]] = {
        "plain PyTorch": plain(run(arguments, KINDS["1 client, dense"][0]))
    }
    steps |= {name: run(arguments, how).step for name, (how, _) in KINDS.items() if arguments.only in name}
    if arguments.against not in steps:
        parser.error(f"--against must be one of: {'; '.join(steps)}")
    times = measure(steps, arguments.rounds, time.process_time if arguments.cpu else time.perf_counter)
    base = times[arguments.against]
    figures = {}
    print(f"{'':32}{'ms a step':>10}{'ratio':>8}{'spread':>16}{'target':>8}")
    for name, found in times.items():
        # Neighbours in time are compared, then the median is taken: load comes and goes within a run.
        ratios = sorted(a / b for a, b in zip(found, base, strict=True))
        low, high = ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
        ratio, target = statistics.median(ratios), KINDS[name][1] if name in KINDS else None
        figures[name] = {
            "milliseconds": 1e3 * statistics.median(found),
            "ratio": ratio,
            "p10": low,
            "p90": high,
        }
        goal = f"{target:8.2f}" if target and arguments.against == "plain PyTorch" else ""
        spread = f"{low:.2f} .. {high:.2f}"
        print(f"{name:32}{1e3 * statistics.median(found):10.1f}{ratio:8.3f}{spread:>16}{goal}")
    if arguments.save:
        RESULTS.parent.mkdir(exist_ok=True)
        settings = {key: value for key, value in vars(arguments).items() if key not in ("root", "save")}
        content = {"settings": settings, "figures": figures, "provenance": provenance(0)}
        RESULTS.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
