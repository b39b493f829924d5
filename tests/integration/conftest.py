"""Real processes for tests: `cutlayer` commands, started in an instant and never left behind."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from cutlayer.training import checkpoint
from cutlayer.training.records import read
from tests.waiting import PATIENCE, until


@dataclass
class Process:
    """A `cutlayer` command at work."""

    pid: int
    output: Path

    @property
    def text(self) -> str:
        return self.output.read_text() if self.output.exists() else ""

    @property
    def running(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    @property
    def code(self) -> int | None:
        """The exit code; None if it was killed or still runs."""
        path = Path(f"{self.output}.exit")
        return int(path.read_text() or -1) if path.exists() else None

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        until(lambda: not self.running, "death")

    def wait(self, seconds: float = PATIENCE) -> int | None:
        until(lambda: not self.running, lambda: f"the end of process {self.pid}:\n{self.text}\n", seconds)
        return self.code

    def says(self, pattern: str) -> re.Match[str]:
        """Wait until its output has a pattern."""
        found: re.Match[str] = until(
            lambda: re.search(pattern, self.text) or (self._ended() and re.search(pattern, self.text)),
            lambda: f"{pattern!r} in the output of process {self.pid}:\n{self.text}\n",
        )
        return found

    def _ended(self) -> bool:
        if not self.running:
            assert re.search(r"\S", self.text) is not None, "it ended without a word"
        return not self.running


class Nursery:
    """Starts processes, and ends them all at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0
        self._mother = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("nursery.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self._mother.stdout is not None
        assert self._mother.stdout.readline() == "ready\n"

    def start(self, *args: str, cwd: Path, **env: str) -> Process:
        self._count += 1
        output = self.folder / f"{self._count}-{args[0]}.txt"
        request = {"args": args, "output": str(output), "cwd": str(cwd), "env": env}
        assert self._mother.stdin is not None
        assert self._mother.stdout is not None
        self._mother.stdin.write(json.dumps(request) + "\n")
        self._mother.stdin.flush()
        return Process(int(self._mother.stdout.readline()), output)

    def close(self) -> None:
        assert self._mother.stdin is not None
        assert self._mother.stdout is not None
        self._mother.stdin.close()
        self._mother.wait(30)
        self._mother.stdout.close()


SETTINGS = [
    "output.tensorboard=false",
    "model.width=4",
    "data.limit=200",
    "data.partition=dirichlet:alpha=1",
    "train.clients=3",
    "train.epochs=2",
    "train.batch_size=8",
    "train.lr=0.05",
    "codec.up=rt:ratio=0.8",
]


class Cluster:
    """One server and its clients in a directory of their own."""

    def __init__(self, nursery: Nursery, folder: Path) -> None:
        self.nursery = nursery
        self.folder = folder
        self.port = 0

    def serve(self, *settings: str, out: str = "net", flags: tuple[str, ...] = (), **env: str) -> Process:
        """Start a server; on the same port as before if there was one."""
        sets = [part for setting in (*SETTINGS, *settings) for part in ("--set", setting)]
        listen = ("--listen", f"127.0.0.1:{self.port}")
        server = self.nursery.start(
            "serve", *sets, "--out", out, *listen, "--threads", "1", *flags, cwd=self.folder, **env
        )
        self.port = int(server.says(r"listening on \S+:(\d+)")[1])
        return server

    def join(self, client: int, *flags: str, port: int | None = None, **env: str) -> Process:
        """Start a client of digits."""
        where = f"127.0.0.1:{port or self.port}"
        args = ("--data", "digits", "--whole", "--threads", "1", "--as", str(client), *flags)
        return self.nursery.start("join", where, *args, cwd=self.folder, **env)

    def join_slowly(self, client: int) -> Process:
        """A client for which a step takes a fifth of a second: a run with it does not end by itself while a
        test is about to disturb it. Let a fast one take its place for the rest."""
        return self.join(client, "--link", "1gbit,50ms")

    def train(self, *settings: str, out: str = "loop", patience: float = PATIENCE) -> Path:
        """The same run in one process, for comparison."""
        sets = [part for setting in (*SETTINGS, *settings) for part in ("--set", setting)]
        process = self.nursery.start("train", *sets, "--out", out, "--threads", "1", cwd=self.folder)
        assert process.wait(patience) == 0, process.text
        return self.folder / out

    def records(self, out: str = "net") -> list[dict[str, Any]]:
        path = self.folder / out / "records.jsonl"
        return list(read(path)) if path.exists() else []


def plain(directory: Path) -> list[dict[str, Any]]:
    """A run's records without what depends on the machine."""
    timed = ("seconds", "simulated_seconds")
    return [{k: v for k, v in r.items() if k not in timed} for r in read(directory / "records.jsonl")]


def same_weights(one: Path, other: Path) -> None:
    """Assert that two runs ended with the same tensors, bit by bit."""
    ends = [checkpoint.latest(d / "checkpoints") for d in (one, other)]
    assert ends[0] is not None
    assert ends[1] is not None
    assert ends[0].step == ends[1].step
    assert ends[0].tensors.keys() == ends[1].tensors.keys()
    for name, tensor in ends[0].tensors.items():
        assert torch.equal(tensor, ends[1].tensors[name]), name


@pytest.fixture(scope="session")
def proxy_class() -> Any:
    """`proxy.Proxy`, for tests, which cannot import it."""
    spec = importlib.util.spec_from_file_location("proxy", Path(__file__).with_name("proxy.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Proxy


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    found = Nursery(tmp_path_factory.mktemp("processes"))
    yield found
    found.close()


@pytest.fixture
def cluster(nursery: Nursery, tmp_path: Path) -> Iterator[Cluster]:
    """Everything that it started is gone afterwards, whatever happened."""
    started: list[Process] = []
    begin = nursery.start

    def start(*args: str, cwd: Path, **env: str) -> Process:
        started.append(begin(*args, cwd=cwd, **env))
        return started[-1]

    nursery.start = start  # type: ignore[method-assign]
    yield Cluster(nursery, tmp_path)
    # Shown if the test failed.
    for process in started:
        print(f"--- {process.output.name}, process {process.pid}:\n{process.text}")
    nursery.start = begin  # type: ignore[method-assign]
    for process in started:
        process.send(signal.SIGKILL)
    for process in started:
        until(lambda: not process.running, "death")  # noqa: B023


@pytest.fixture
def network() -> Any:
    """The helpers of this file, for tests, which cannot import each other."""
    return sys.modules[__name__]
