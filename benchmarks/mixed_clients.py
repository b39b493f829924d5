"""Digits with one PyTorch client and one ONNX client over gRPC, against two PyTorch clients, seed by seed.

    python benchmarks/mixed_clients.py                     print the figures
    python benchmarks/mixed_clients.py --save              and write results/mixed_clients.json
    python benchmarks/mixed_clients.py --keep DIR          continue a measurement that was interrupted

A lossy codec turns a difference in the last bit into other mask bits, and from there on two runs part as two
seeds do. Whether an ONNX client costs accuracy beyond that is seen beside a control, `nudged`: two PyTorch
clients whose first weights are moved by a ten-millionth, the size of rounding. A seed takes about half a
minute of processor time. Nothing here passes or fails; the goal is a difference within half a point.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cutlayer.analysis.statistics import mean_interval
from cutlayer.config.schema import Config
from cutlayer.config.schema import load as load_config
from cutlayer.data.spec import DataSpec
from cutlayer.onnx_export.training_half import export_training
from cutlayer.protocol.build import prepare_data
from cutlayer.training.local_run import local_run
from cutlayer.training.provenance import provenance
from cutlayer.training.records import read

RESULTS = Path(__file__).parent / "results" / "mixed_clients.json"
#: Codecs of smashed data, and how many seeds each needs: with the lossy one single runs differ by a point.
SEEDS = {"none": 3, "ms:ratio=0.9,bits=2": 8}
NUDGE = 1e-7
Figures = dict[str, Any]


def with_pytorch(config: Config, nudge: float = 0.0) -> Figures:
    """A run of two PyTorch clients. In one process it gives the bits that it gives over the network."""
    run = local_run(config)
    rng = torch.Generator().manual_seed(config.seed)
    with torch.no_grad():
        for weight in {id(w): w for half in run.clients.halves for w in half.model.parameters}.values():
            weight.mul_(1 + nudge * torch.randn(weight.shape, generator=rng))
    losses = []
    while not run.done:
        losses.append(run.step().loss)
    return {"accuracy": run.evaluate().metrics["accuracy"], "losses": losses}


def command(*words: object) -> "subprocess.Popen[bytes]":
    """A command of cutlayer at work, on one thread."""
    program = [sys.executable, "-m", "cutlayer", *map(str, words), "--quiet"]
    return subprocess.Popen(program, env={**os.environ, "OMP_NUM_THREADS": "1"})


def mixed(toml: Path, config: Config, folder: Path) -> Figures:
    """A run over gRPC of client 0 with PyTorch, which evaluates, and client 1 with an ONNX half."""
    data = prepare_data(config)
    export_training(config, DataSpec.of(data), folder / "client.onnx")
    images, labels = data.train.batch(data.parts[1])
    np.savez(folder / "mine.npz", images=np.asarray(images), labels=labels.numpy())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    half = ["--half", folder / "client.onnx", "--data", folder / "mine.npz"]
    processes = [
        command("serve", toml, "--listen", address, "--out", folder / "mixed", "--threads", 1),
        command("join", address, "--data", "digits", "--whole", "--as", 0),
        command("join", address, *half, "--as", 1),
    ]
    try:
        if any(process.wait() for process in processes):
            raise SystemExit("a party of the mixed run failed")
    finally:
        for process in processes:
            process.kill()
    records = list(read(folder / "mixed" / "records.jsonl"))
    return {
        "accuracy": [r for r in records if r["kind"] == "epoch"][-1]["accuracy"],
        "losses": [r["loss"] for r in records if r["kind"] == "step"],
    }


def one_seed(codec: str, seed: int, epochs: int) -> Figures:
    """The three runs of a seed: their accuracies, and how long their losses are the same."""
    with tempfile.TemporaryDirectory() as name:
        toml = Path(name, "run.toml")
        toml.write_text(f'seed = {seed}\n[train]\nclients = 2\nepochs = {epochs}\n[codec]\nup = "{codec}"\n')
        config = load_config(toml)
        runs = {
            "pytorch": with_pytorch(config),
            "nudged": with_pytorch(config, NUDGE),
            "mixed": mixed(toml, config, Path(name)),
        }
    truth = np.array(runs["pytorch"]["losses"])
    row: Figures = {"accuracy": {kind: run["accuracy"] for kind, run in runs.items()}}
    for kind in ("nudged", "mixed"):
        gap = np.abs(np.array(runs[kind]["losses"]) - truth) / truth
        row[kind] = {
            "largest_loss_gap_of_first_epoch": float(gap[: len(truth) // epochs].max()),
            "steps_until_losses_differ_by_1e-4": int(np.argmax(gap > 1e-4)) if (gap > 1e-4).any() else None,
        }
    return row


def compare(codec: str, seeds: int, epochs: int, keep: Path) -> Figures:
    """All seeds, and the paired differences in points with their intervals."""
    found: Figures = {}
    for seed in range(seeds):
        file = keep / f"{codec.partition(':')[0]}-{epochs}-{seed}.json"
        if not file.exists():
            file.write_text(json.dumps(one_seed(codec, seed, epochs)))
        found[f"seed {seed}"] = json.loads(file.read_text())
    for kind in ("nudged", "mixed"):
        rows = [row["accuracy"] for row in found.values() if "accuracy" in row]
        differences = [100 * (row[kind] - row["pytorch"]) for row in rows]
        interval = mean_interval(differences)
        found[f"{kind} less pytorch, points"] = {
            "mean": interval.mean,
            "interval_95": [interval.low, interval.high],
            "each": differences,
        }
    return found


def main() -> None:
    """Measure, print, and save if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, help="by default 3 without a codec and 8 with a lossy one")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--codec", choices=SEEDS, help="one of the two alone")
    parser.add_argument("--keep", type=Path, help="keep the figures of each seed there")
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found: Figures = {"provenance": provenance(0), "epochs": arguments.epochs}
    with tempfile.TemporaryDirectory() as name:
        keep = arguments.keep or Path(name)
        keep.mkdir(parents=True, exist_ok=True)
        for codec in [arguments.codec] if arguments.codec else SEEDS:
            found[codec] = compare(codec, arguments.seeds or SEEDS[codec], arguments.epochs, keep)
    print(json.dumps(found, indent=2))
    if arguments.save:
        RESULTS.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
