"""The device's work in split inference, head and codec, with onnxruntime against PyTorch, side by side.

    python benchmarks/device.py --root DATA                     throughput on digits and CIFAR-10, one thread
    python benchmarks/device.py --root DATA --cifar RUN         and what ONNX and INT8 cost RUN in accuracy
    python benchmarks/device.py --root DATA --cifar RUN --save  and write results/device.json

It takes about two minutes on an idle machine. DATA has CIFAR-10. Throughput does not depend on what a model
has learned, so without --cifar a CIFAR-10 model is trained for a few steps only. What a device takes on disk
and in memory is in device_footprint.py, training beside PyTorch clients in mixed_clients.py. Nothing here
passes or fails; the goal is to be no slower than PyTorch.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cutlayer.analysis.statistics import mean_interval
from cutlayer.codecs import decode
from cutlayer.data import load
from cutlayer.device.inference_half import OnnxHalf
from cutlayer.inference.client_half import ClientSide
from cutlayer.onnx_export.sources import export_run
from cutlayer.training.load_run import Trained, open_run
from cutlayer.training.provenance import provenance

RESULTS = Path(__file__).parent / "results" / "device.json"
BATCH = 64
# A difference of two logits below which a prediction is a tie.
TIE = 1e-3
Figures = dict[str, Any]


def train(folder: Path, name: str, *words: object) -> Path:
    """A run of that name."""
    command = [sys.executable, "-m", "cutlayer", "train", *map(str, words)]
    command += ["--clients", "2", "--threads", "1", "--quiet", "--out", str(folder / name)]
    subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)
    return folder / name


def test_images(trained: Trained) -> tuple[torch.Tensor, torch.Tensor]:
    """The test samples of a run, all of them."""
    data = trained.config.data
    found = load(data.source, "test", root=data.root, size=data.size)
    images, labels = found.batch(torch.arange(len(found)))
    if not isinstance(images, torch.Tensor):
        raise TypeError("these benchmarks are of images")
    return images, labels


def frames(half: ClientSide | OnnxHalf, images: Any) -> Callable[[], bytes]:
    """The device's work on a batch: its half, then the codec."""
    return lambda: half.encode(half.smash(images))


def throughput(trained: Trained, folder: Path, seconds: float) -> Figures:
    """Samples a second on one thread. Rounds alternate for so many seconds a batch size; medians count."""
    halves = {
        "onnxruntime": export_run(trained, folder / "half.onnx"),
        "int8": export_run(trained, folder / "int8.onnx", int8=True),
    }
    images = test_images(trained)[0]
    figures: Figures = {}
    for batch in (1, BATCH):
        piece = images[:batch]
        work = {"pytorch": frames(ClientSide.of(trained), piece)}
        work |= {kind: frames(half, piece.numpy()) for kind, half in halves.items()}
        for step in work.values():
            for _ in range(5):  # caches, and memory that is taken once
                step()
        times: dict[str, list[float]] = {kind: [] for kind in work}
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends:
            for kind, step in work.items():
                began = time.perf_counter()
                step()
                times[kind].append(time.perf_counter() - began)
        speed = {kind: batch / statistics.median(found) for kind, found in times.items()}
        ratio = {f"{kind}_to_pytorch": speed[kind] / speed["pytorch"] for kind in halves}
        figures[f"batch {batch}"] = {"samples_per_second": speed, **ratio, "rounds": len(times["pytorch"])}
    return figures


def accuracy(trained: Trained, folder: Path) -> Figures:
    """Features and predictions of ONNX halves against PyTorch's, and what INT8 costs, with 95 % intervals."""
    body = trained.parts[1].eval()
    images, labels = test_images(trained)
    halves: dict[str, Any] = {"pytorch": ClientSide.of(trained)}
    halves["onnx"] = export_run(trained, folder / "half.onnx")
    halves["int8"] = export_run(trained, folder / "int8.onnx", int8=True)
    features: dict[str, list[Any]] = {kind: [] for kind in halves}
    logits: dict[str, list[torch.Tensor]] = {kind: [] for kind in halves}
    for piece in torch.split(images, BATCH):
        for kind, half in halves.items():
            found = half.smash(piece if kind == "pytorch" else piece.numpy())
            features[kind].append(np.asarray(found))
            with torch.no_grad():
                logits[kind].append(body(decode(half.encode(found, None))))
    joined = {kind: torch.cat(found) for kind, found in logits.items()}
    best = joined["pytorch"].topk(2).values
    certain = best[:, 0] - best[:, 1] > TIE
    truth = np.concatenate(features["pytorch"])
    right = {kind: (found.argmax(1) == labels).double() for kind, found in joined.items()}
    figures: Figures = {"samples": len(labels), "ties": int((~certain).sum())}
    for kind, found in joined.items():
        other = np.concatenate(features[kind]) - truth
        differs = found.argmax(1) != joined["pytorch"].argmax(1)
        cost = mean_interval((100 * (right[kind] - right["pytorch"])).tolist())
        figures[kind] = {
            "accuracy": float(right[kind].mean()),
            "points_against_pytorch": [cost.mean, cost.low, cost.high],
            "feature_error": float(np.linalg.norm(other) / np.linalg.norm(truth)),
            "other_predictions": int(differs.sum()),
            "other_predictions_but_for_ties": int(differs[certain].sum()),
        }
    return figures


def main() -> None:
    """Measure, print, and save if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, help="the folder with CIFAR-10; without it digits alone")
    parser.add_argument("--cifar", type=Path, help="a trained run on CIFAR-10")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each model and batch size")
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found: Figures = {"provenance": provenance(0), "throughput": {}, "accuracy": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        digits = ["--epochs", 10, "--codec", "ms:ratio=0.9,bits=2", "--seed", 1]
        runs = {"digits": train(folder, "digits", *digits)}
        if arguments.cifar is not None:
            runs["cifar10"] = arguments.cifar
        elif arguments.root is not None:
            model = ["--model", "resnet18", "--cut", "medium", "--set", "model.width=16"]
            data = ["--data", "cifar10", "--root", arguments.root, "--set", "data.limit=640"]
            some = ["--epochs", 1, "--codec", "ms:ratio=0.9,bits=2"]
            runs["cifar10"] = train(folder, "cifar10", *model, *data, *some)
        for data_set, run in runs.items():
            trained = open_run(run)
            found["throughput"][data_set] = throughput(trained, folder, arguments.seconds)
            if data_set == "digits" or arguments.cifar is not None:
                found["accuracy"][data_set] = accuracy(trained, folder)
    print(json.dumps(found, indent=2))
    if arguments.save:
        RESULTS.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
