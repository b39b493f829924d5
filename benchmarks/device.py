"""What a device without PyTorch takes and gives, against one with it, measured side by side in one run.

    python benchmarks/device.py --wheel dist/*.whl --root DATA          print the figures
    python benchmarks/device.py --wheel dist/*.whl --root DATA --save   and write results/device.json
    python benchmarks/device.py --only accuracy     or throughput, training, footprint

`footprint` installs the wheel in fresh environments, which takes minutes. --root has CIFAR-10.
Nothing here passes or fails; the goals are printed beside the figures.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cutlayer.codecs import decode
from cutlayer.config.schema import load as load_config
from cutlayer.data import load
from cutlayer.device.inference_half import OnnxHalf
from cutlayer.inference.client_half import ClientSide
from cutlayer.inference.export import export
from cutlayer.onnx_export.inference_half import export_onnx
from cutlayer.onnx_export.sources import export_run
from cutlayer.protocol.build import prepare_data
from cutlayer.training.load_run import Trained, open_run
from cutlayer.training.provenance import provenance
from cutlayer.training.records import read

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "device.json"
CONSTRAINTS = HERE.parent / "constraints.txt"
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
BATCH = 64
Figures = dict[str, Any]


def cutlayer(*words: object, python: Path | str = sys.executable, **options: Any) -> "subprocess.Popen[str]":
    """A command at work."""
    command = [str(python), "-m", "cutlayer", *map(str, words)]
    return subprocess.Popen(command, env=ONE_THREAD, text=True, **options)


def done(process: "subprocess.Popen[str]") -> None:
    """Wait until a command has ended well."""
    if process.wait() != 0:
        raise SystemExit(f"{process.args!r} failed")


def trained_runs(folder: Path, root: Path | None) -> dict[str, Path]:
    """A run on digits, and a short one on CIFAR-10."""
    digits = ["--clients", 2, "--epochs", 10, "--codec", "ms:ratio=0.9,bits=2", "--seed", 1]
    wanted = {"digits": digits}
    if root is not None:
        model = ["--model", "resnet18", "--cut", "medium", "--set", "model.width=16", "--batch", 64]
        some = [
            "--data",
            "cifar10",
            "--root",
            root,
            "--set",
            "data.limit=20000",
            "--clients",
            2,
            "--epochs",
            2,
        ]
        wanted["cifar10"] = [*model, *some, "--codec", "ms:ratio=0.99,bits=2"]
    for name, words in wanted.items():
        if not (folder / name).exists():
            done(cutlayer("train", *words, "--threads", 1, "--quiet", "--out", folder / name))
    return {name: folder / name for name in wanted}


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


def throughput(runs: dict[str, Path], folder: Path) -> Figures:
    """Samples a second of the device's work, head and codec, on one thread; rounds alternate."""
    torch.set_num_threads(1)
    figures: Figures = {}
    for name, run in runs.items():
        trained = open_run(run)
        twin = ClientSide.of(trained)
        halves = {
            "onnxruntime": export_onnx(trained, folder / f"{name}.onnx"),
            "int8": export_run(trained, folder / f"{name}-int8.onnx", int8=True),
        }
        images = test_images(trained)[0]
        for batch in (1, BATCH):
            piece = images[:batch]
            array = piece.numpy()
            work = {"pytorch": frames(twin, piece)}
            work |= {kind: frames(half, array) for kind, half in halves.items()}
            times: dict[str, list[float]] = {kind: [] for kind in work}
            for number in range(60):
                for kind, step in work.items():
                    began = time.perf_counter()
                    step()
                    if number >= 10:
                        times[kind].append(time.perf_counter() - began)
            speed = {kind: batch / statistics.median(found) for kind, found in times.items()}
            ratio = {f"{kind}_to_pytorch": speed[kind] / speed["pytorch"] for kind in halves}
            figures[f"{name}, batch {batch}"] = {"samples_per_second": speed, **ratio}
    return figures


def accuracy(runs: dict[str, Path], folder: Path) -> Figures:
    """Features and predictions of ONNX halves against PyTorch's, and the accuracy with INT8."""
    figures: Figures = {}
    for name, run in runs.items():
        trained = open_run(run)
        twin, body = ClientSide.of(trained), trained.parts[1].eval()
        images, labels = test_images(trained)
        halves: dict[str, Any] = {"pytorch": twin}
        for kind, int8 in (("onnx", False), ("int8", True)):
            halves[kind] = export_run(trained, folder / f"{name}-{kind}.onnx", int8=int8)
        features: dict[str, list[Any]] = {kind: [] for kind in halves}
        logits: dict[str, list[torch.Tensor]] = {kind: [] for kind in halves}
        for piece in torch.split(images, BATCH):
            for kind, half in halves.items():
                found = half.smash(piece if kind == "pytorch" else piece.numpy())
                features[kind].append(np.asarray(found))
                with torch.no_grad():
                    logits[kind].append(body(decode(half.up.encode(found))))
        joined = {kind: torch.cat(found) for kind, found in logits.items()}
        best = joined["pytorch"].topk(2).values
        certain = best[:, 0] - best[:, 1] > 1e-3
        truth = np.concatenate(features["pytorch"])
        figures[name] = {"samples": len(labels), "ties": int((~certain).sum())}
        for kind, found in joined.items():
            other = np.concatenate(features[kind]) - truth
            differs = (found.argmax(1) != joined["pytorch"].argmax(1))[certain]
            figures[name][kind] = {
                "accuracy": float((found.argmax(1) == labels).float().mean()),
                "feature_error": float(np.linalg.norm(other) / np.linalg.norm(truth)),
                "other_predictions_but_for_ties": int(differs.sum()),
            }
    return figures


@contextmanager
def served(run: Path) -> Iterator[str]:
    """The server's half of a run at work; its address."""
    process = cutlayer("serve-inference", run, "--listen", "127.0.0.1:0", stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        while ":" not in (line := process.stderr.readline()):
            if not line:
                raise SystemExit("the server did not start")
        yield "127.0.0.1:" + line.rsplit(":", 1)[1].split()[0].strip(" ,;.")
    finally:
        process.terminate()
        process.wait()


def size(folder: Path) -> int:
    """The bytes of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


# A small process starts the command: the peak of a child begins at that of the process that it comes from.
STARTER = """
import os, subprocess, sys, time
began = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
print(time.perf_counter() - began, usage.ru_maxrss * 1024, status)
"""


def best_run(command: list[str], times: int = 5) -> tuple[float, int]:
    """The shortest time of a command in seconds, and its peak of resident memory in bytes."""
    found = []
    for _ in range(times):
        starter = [sys.executable, "-c", STARTER, *command]
        done = subprocess.run(starter, env=ONE_THREAD, capture_output=True, text=True, check=True)
        seconds, memory, status = done.stdout.split()
        if status != "0":
            raise SystemExit(f"{command} failed")
        found.append((float(seconds), int(memory)))
    return min(found)


def footprint(wheel: Path, run: Path, folder: Path) -> Figures:
    """Disk, memory and time of a device with onnxruntime, and of one with PyTorch."""
    trained = open_run(run)
    export_onnx(trained, folder / "device.onnx")
    export(trained, folder / "device.safetensors", "client")
    np.save(folder / "one.npy", test_images(trained)[0][:1].numpy())
    from PIL import Image

    Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "one.png")
    figures: Figures = {}
    with served(run) as address:
        for extra, half in (("device", "device.onnx"), ("train,network", "device.safetensors")):
            place = folder / f"env-{half}"
            venv.create(place, with_pip=True)
            python = place / "bin" / "python"
            site = next(place.glob("lib/python*/site-packages"))
            before = size(site)
            pip = [
                str(python),
                "-m",
                "pip",
                "--disable-pip-version-check",
                "install",
                "-q",
                "-c",
                str(CONSTRAINTS),
            ]
            began = time.perf_counter()
            subprocess.run([*pip, f"{wheel}[{extra}]"], check=True)
            installing = time.perf_counter() - began
            predict = ["-m", "cutlayer", "predict", str(folder / half), "--data", str(folder / "one.png")]
            seconds, memory = best_run([str(python), *predict, "--server", address])
            figures[f"cutlayer[{extra}]"] = {
                "installed_bytes": size(site) - before,
                "install_seconds": installing,
                "import_seconds": best_run([str(python), "-c", "import cutlayer"])[0]
                - best_run([str(python), "-c", "pass"])[0],
                "first_prediction_seconds": seconds,
                "peak_resident_bytes": memory,
                "half_bytes": (folder / half).stat().st_size,
            }
    small, large = figures.values()
    figures["ratio"] = {k: small[k] / large[k] for k in ("installed_bytes", "peak_resident_bytes")}
    return figures


def training(folder: Path, codec: str, seeds: int = 3) -> Figures:
    """Digits with one PyTorch and one ONNX client over gRPC, against two PyTorch clients."""
    figures: Figures = {}
    for seed in range(seeds):
        place = folder / f"{codec.partition(':')[0]}-{seed}"
        place.mkdir()
        toml = place / "run.toml"
        toml.write_text(f'seed = {seed}\n[train]\nclients = 2\nepochs = 10\n[codec]\nup = "{codec}"\n')
        data = prepare_data(load_config(toml))
        images, labels = data.train.batch(data.parts[1])
        np.savez(place / "mine.npz", images=np.asarray(images), labels=labels.numpy())
        words = ["--part", "client", "--format", "onnx-training", "--out", place / "client.onnx"]
        done(cutlayer("export", toml, *words, stdout=subprocess.DEVNULL))
        # Over the network two PyTorch clients give the bits of a run in one process.
        done(cutlayer("train", toml, "--threads", 1, "--quiet", "--out", place / "twin"))
        address = f"127.0.0.1:{50870 + seed}"
        server = cutlayer(
            "serve", toml, "--listen", address, "--out", place / "mixed", "--threads", 1, "--quiet"
        )
        joins = [
            cutlayer("join", address, "--data", "digits", "--whole", "--as", 0, "--quiet"),
            cutlayer(
                "join",
                address,
                "--data",
                place / "mine.npz",
                "--half",
                place / "client.onnx",
                "--as",
                1,
                "--quiet",
            ),
        ]
        for process in (server, *joins):
            done(process)
        ends = {
            name: [r for r in read(place / name / "records.jsonl") if r["kind"] == "epoch"][-1]["accuracy"]
            for name in ("mixed", "twin")
        }
        figures[f"seed {seed}"] = ends
    gaps = [found["mixed"] - found["twin"] for found in figures.values()]
    figures["mean_difference_points"] = 100 * statistics.mean(gaps)
    return figures


def main() -> None:
    """Measure, print, and save if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--runs", type=Path, help="keep the trained runs there, or take them from there")
    parser.add_argument("--only", choices=["footprint", "throughput", "accuracy", "training"])
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wanted = [arguments.only] if arguments.only else ["throughput", "accuracy", "training", "footprint"]
        runs: dict[str, Path] = {}
        if wanted != ["training"]:
            runs = trained_runs(arguments.runs or folder, arguments.root)
        found: Figures = {"provenance": provenance(0)}
        if "throughput" in wanted:
            found["throughput"] = throughput(runs, folder)
        if "accuracy" in wanted:
            found["accuracy"] = accuracy(runs, folder)
        if "training" in wanted:
            # A codec turns rounding into other mask bits: runs part as two seeds do.
            found["training"] = {up: training(folder, up) for up in ("none", "ms:ratio=0.9,bits=2")}
        if "footprint" in wanted:
            if arguments.wheel is None:
                raise SystemExit("footprint installs a wheel: give --wheel dist/*.whl (make wheel)")
            found["footprint"] = footprint(arguments.wheel.resolve(), runs["digits"], folder)
    goals = {
        "footprint": "a fifth or less on disk and in memory, first prediction 1 s, import 0.2 s",
        "throughput": "no slower than PyTorch",
        "training": "within half a point",
    }
    print(json.dumps({**found, "goals": goals}, indent=2))
    if arguments.save:
        RESULTS.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
