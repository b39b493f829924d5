"""Disk, memory and time of a device with cutlayer[device], against one with PyTorch, in fresh environments.

    python benchmarks/device_footprint.py --wheel dist/*.whl           print the figures
    python benchmarks/device_footprint.py --wheel dist/*.whl --save    and write results/device_footprint.json
    python benchmarks/device_footprint.py --environments DIR           use those of an earlier run, kept there

The job is the same on both: load the client's half of a run on digits, send one picture, get the answer; once
with the command `cutlayer predict`, once with `RemoteModel` in Python. `libraries` is the floor: NumPy,
onnxruntime and gRPC do that job without a line of cutlayer's. Memory is read at the end of the process:

    resident    all pages that it has in memory, those of shared libraries included
    unique      pages that no other process has (USS); the server, on the same machine, shares libraries
    anonymous   pages that are no file's: what cannot be dropped and read again

Installing PyTorch takes minutes. Nothing here passes or fails; the goals are a fifth or less on disk and in
memory, a first prediction within 1 s and an import within 0.2 s.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cutlayer.inference.export import export
from cutlayer.onnx_export.inference_half import export_onnx
from cutlayer.training.load_run import open_run
from cutlayer.training.provenance import provenance

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "device_footprint.json"
CONSTRAINTS = HERE.parent / "constraints.txt"
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
HALVES = {"device": "device.onnx", "train,network": "device.safetensors"}
TIMES = 5
Figures = dict[str, Any]

# Runs first in each measured process: at its end, what it took goes to a file.
MEASURE = """
import atexit, sys, time
began = time.time()
def measure(path=sys.argv.pop(1)):
    found = dict(line.split()[:2] for line in open("/proc/self/smaps_rollup") if line.endswith("kB\\n"))
    unique = int(found["Private_Clean:"]) + int(found["Private_Dirty:"])
    figures = int(found["Rss:"]), unique, int(found["Anonymous:"]), time.process_time() * 1e6
    open(path, "w").write(" ".join(map(str, figures)))
atexit.register(measure)
"""
COMMAND = "from cutlayer.cli import main\nsys.argv[0] = 'cutlayer'\nmain()\n"
PYTHON = """
import numpy
from cutlayer import RemoteModel
half, picture, address = sys.argv[1:]
with RemoteModel(address, half) as model:
    image = numpy.load(picture)
    if not half.endswith(".onnx"):
        import torch
        image = torch.from_numpy(image)
    assert model(image).shape == (1, 10)
"""
LIBRARIES = """
import grpc, numpy, onnxruntime
half, picture, address = sys.argv[1:]
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(half, options, providers=["CPUExecutionProvider"])
(smashed,) = session.run(None, {session.get_inputs()[0].name: numpy.load(picture)})
with grpc.insecure_channel(address) as channel:
    try:  # the server reads it, and answers that it is no frame
        channel.unary_unary("/cutlayer.v1.Inference/Predict")(smashed.tobytes()[:64], timeout=10)
    except grpc.RpcError as error:
        assert error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
"""


def run(*words: object, **options: Any) -> None:
    """Run a command to its end, quietly."""
    subprocess.run([*map(str, words)], env=ONE_THREAD, check=True, stdout=subprocess.DEVNULL, **options)


@contextmanager
def served(trained: Path) -> Iterator[str]:
    """The server's half of a run at work; its address."""
    words = ["serve-inference", trained, "--listen", "127.0.0.1:0"]
    command = [sys.executable, "-m", "cutlayer", *map(str, words)]
    process = subprocess.Popen(command, env=ONE_THREAD, text=True, stderr=subprocess.PIPE)
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


def made(folder: Path, extra: str, wheel: Path | None) -> tuple[Path, Figures]:
    """The Python of a fresh environment with cutlayer[extra], and what the install took."""
    place = folder / f"env-{extra.replace(',', '-')}"
    figures: Figures = {}
    if not place.exists():
        if wheel is None:
            raise SystemExit("environments are made of a wheel: give --wheel dist/*.whl (make wheel)")
        venv.create(place, with_pip=True)
        site = next(place.glob("lib/python*/site-packages"))
        before, began = size(site), time.perf_counter()
        pip = [place / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        run(*pip, "-c", CONSTRAINTS, f"{wheel}[{extra}]")
        figures["install_seconds"] = time.perf_counter() - began
        figures["installed_bytes"] = size(site) - before
    return place / "bin" / "python", figures


def job(python: Path, program: str, folder: Path, *words: object) -> Figures:
    """What a program takes: the least of several runs, as the first one reads files from the disk."""
    found = []
    for _ in range(TIMES):
        began = time.perf_counter()
        run(python, "-c", MEASURE + program, folder / "took", *words, stderr=subprocess.DEVNULL)
        seconds = time.perf_counter() - began
        resident, unique, anonymous, cpu = map(float, (folder / "took").read_text().split())
        found.append((resident * 1024, unique * 1024, anonymous * 1024, cpu / 1e6, seconds))
    names = ("resident_bytes", "unique_bytes", "anonymous_bytes", "processor_seconds", "seconds")
    return {name: min(values) for name, values in zip(names, zip(*found, strict=True), strict=True)}


def footprint(wheel: Path | None, folder: Path, keep: Path) -> Figures:
    """Both devices at the same job."""
    digits = folder / "digits"
    words = ["--clients", 2, "--epochs", 1, "--codec", "ms:ratio=0.9,bits=2", "--threads", 1, "--quiet"]
    run(sys.executable, "-m", "cutlayer", "train", *words, "--out", digits)
    trained = open_run(digits)
    export_onnx(trained, folder / HALVES["device"])
    export(trained, folder / HALVES["train,network"], "client")
    np.save(folder / "one.npy", np.zeros((1, 1, 8, 8), np.uint8))
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "one.png")
    figures: Figures = {}
    with served(digits) as address:
        for extra, name in HALVES.items():
            python, found = made(keep, extra, wheel)
            half, array = folder / name, folder / "one.npy"
            predict = ["predict", half, "--data", folder / "one.png", "--server", address]
            found["half_bytes"] = half.stat().st_size
            found["predict"] = job(python, COMMAND, folder, *predict)
            found["RemoteModel"] = job(python, PYTHON, folder, half, array, address)
            nothing, imported = (job(python, text, folder) for text in ("", "import cutlayer\n"))
            found["import_seconds"] = imported["processor_seconds"] - nothing["processor_seconds"]
            if extra == "device":
                found["libraries"] = job(python, LIBRARIES, folder, half, array, address)
            figures[f"cutlayer[{extra}]"] = found
    small, large = figures.values()
    figures["ratio"] = {
        way: {what: small[way][what] / large[way][what] for what in small[way]}
        for way in ("predict", "RemoteModel")
    }
    figures["ratio"]["libraries"] = {
        what: small["libraries"][what] / large["RemoteModel"][what] for what in small["libraries"]
    }
    if "installed_bytes" in small:
        figures["ratio"]["installed_bytes"] = small["installed_bytes"] / large["installed_bytes"]
    return figures


def main() -> None:
    """Measure, print, and save if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("--environments", type=Path, help="keep them there, or take them from there")
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keep = folder if arguments.environments is None else arguments.environments.resolve()
        keep.mkdir(parents=True, exist_ok=True)
        wheel = arguments.wheel and arguments.wheel.resolve()
        found = {"provenance": provenance(0), **footprint(wheel, folder, keep)}
    print(json.dumps(found, indent=2))
    if arguments.save:
        RESULTS.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
