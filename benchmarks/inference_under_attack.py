"""Latency of honest inference while slow attackers are connected, against that without, in one run.

    python benchmarks/inference_under_attack.py            print the figures
    python benchmarks/inference_under_attack.py --save     and write them to benchmarks/results

The server is a process of its own on loopback, with tokens. Rounds with and without attackers take turns. The
attackers hold what they can and send nothing: 96 calls without a token, 96 calls with a token of their own
and no body, and 500 plain TCP connections. What the server ends they begin again, after a second (slow) or at
once (flood).
Nothing here passes or fails; the target is printed beside the figures.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from cutlayer.data import Dataset, load
from cutlayer.inference.client_half import ClientSide
from cutlayer.inference.remote_model import RemoteModel
from cutlayer.inference.service import PREDICT
from cutlayer.training.provenance import provenance
from cutlayer.wire.security import tokens
from cutlayer.wire.security.credentials import ClientSecurity

RESULTS = Path(__file__).parent / "results" / "inference_under_attack.json"
RAW = Path(__file__).parent.parent / "tests" / "raw_http2.py"


def raw_http2() -> Any:
    """The tests' HTTP/2 by hand."""
    spec = importlib.util.spec_from_file_location("raw_http2", RAW)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cutlayer(*words: object, **options: Any) -> subprocess.Popen[str]:
    """A command at work."""
    program = [sys.executable, "-m", "cutlayer", *map(str, words)]
    return subprocess.Popen(program, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, **options)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A small run behind `serve-inference`; its address."""
    small = ["--clients", 2, "--epochs", 1, "--set", "data.limit=120", "--threads", 1, "--quiet"]
    assert cutlayer("train", *small, "--codec", "ms", "--out", folder / "run").wait() == 0
    listen = ["--listen", "127.0.0.1:0", "--tokens", folder / "tokens.txt", "--threads", 1]
    with cutlayer("serve-inference", folder / "run", *listen, stderr=subprocess.PIPE) as server:
        assert server.stderr is not None
        try:
            yield server.stderr.readline().split(" on ")[1].split(";")[0]
        finally:
            server.terminate()


@contextmanager
def attacked(port: int, token: str, pause: float) -> Iterator[None]:
    """Attackers at work, until the end of the block."""
    raw = raw_http2()
    over = threading.Event()

    def hold(secret: str | None) -> None:
        """Calls without a body, again whenever the server has ended them all."""
        while not over.is_set():
            with (
                suppress(OSError, AssertionError, ConnectionError),
                raw.call(port, PREDICT, secret, 32) as one,
            ):
                one.settimeout(1)
                raw.ends_of_calls(one, 32)
            over.wait(pause)

    threads = [threading.Thread(target=hold, args=(secret,)) for secret in (None, token) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(500):
        raw.connect(port)
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
        for connection in raw.opened:
            connection.close()


def latencies(model: RemoteModel, image: torch.Tensor, requests: int) -> list[float]:
    """Milliseconds of requests, one after another."""
    found = []
    for _ in range(requests):
        began = time.perf_counter()
        model(image)
        found.append(1000 * (time.perf_counter() - began))
    return found


def at(values: list[float], share: float) -> float:
    """A quantile."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    """Measure, print, and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=300, help="in each round")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    digits = load("digits", "test")
    assert isinstance(digits, Dataset)
    image = digits.images[:1]
    pauses = {"slow": 1.0, "flood": 0.0}
    found: dict[str, list[float]] = {"without": [], **{kind: [] for kind in pauses}}
    load_average = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _, files = tokens.make(folder, ["camera", "mallory"])
        camera, mallory = (file.read_text().strip() for file in files)
        with served(folder) as address:
            port = int(address.rpartition(":")[2])
            with RemoteModel(address, ClientSide.load(folder / "run"), ClientSecurity(token=camera)) as model:
                latencies(model, image, 50)
                for _ in range(arguments.rounds):
                    found["without"] += latencies(model, image, arguments.requests)
                    for kind, pause in pauses.items():
                        with attacked(port, mallory, pause):
                            found[kind] += latencies(model, image, arguments.requests)
    figures: dict[str, Any] = {
        kind: {f"p{round(100 * share)}, ms": round(at(each, share), 3) for share in (0.5, 0.95, 0.99)}
        for kind, each in found.items()
    }
    for kind in pauses:
        ratio = at(found[kind], 0.95) / at(found["without"], 0.95)
        figures[f"p95, {kind} / without"] = round(ratio, 3)
    figures |= {"target, slow": "at most 2", "n": len(found["slow"]), "load average before": load_average}
    print(json.dumps(figures, indent=2))
    if arguments.save:
        saved = {"provenance": provenance(0), "figures": figures}
        RESULTS.write_text(json.dumps(saved, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
