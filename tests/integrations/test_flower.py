"""The Flower app learns: over a grid in memory, and by `flwr run` in Flower's own simulation.

Flower needs earlier releases of some packages than the rest, so `make flower` runs this in an environment of
its own, without the fixtures of tests/conftest.py.
"""

import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed")

from flwr.app import ConfigRecord, Context, RecordDict
from torch import nn

from cutlayer.errors import MessageError
from cutlayer.integrations.flower import split_client_app, split_server_app

APP = Path(__file__).parents[2] / "docs" / "examples" / "flower-app"
EXAMPLE = runpy.run_path(str(APP / "split_app.py"))


class Grid:
    """Two nodes in this process."""

    def __init__(self, client_app: Any) -> None:
        self._app = client_app
        self._nodes = {11: 0, 12: 1}
        self.messages = 0

    def get_node_ids(self) -> list[int]:
        return list(self._nodes)

    def send_and_receive(self, messages: Any) -> list[Any]:
        replies = []
        for message in messages:
            self.messages += 1
            node = message.metadata.dst_node_id
            context = Context(1, node, {"partition-id": self._nodes[node]}, RecordDict(), {})
            replies.append(self._app(message, context))
        return replies


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Newer releases of Flower ask who sends a message; a process of Flower's own would know."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:
        return
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def run(grid: Grid, server_app: Any) -> None:
    server_app(grid, Context(1, 0, {}, RecordDict(), {}))


def test_it_learns_and_sends_little() -> None:
    told: list[tuple[int, float, int, int]] = []
    client = split_client_app(EXAMPLE["net"], at="1", data=EXAMPLE["batch"], up="ems:bpe=2.0")
    server = split_server_app(EXAMPLE["net"], at="1", steps=30, told=lambda *about: told.append(about))
    grid = Grid(client)
    run(grid, server)
    assert grid.messages == 2 * 2 * 30
    assert told[0][1] > 1.3, "four classes: guessing gives 1.39"
    assert told[-1][1] < 0.5
    assert all(raw > 14 * sent for _, _, sent, raw in told)


def test_a_node_that_lies_about_its_samples_is_refused() -> None:
    def narrow() -> nn.Module:
        return nn.Sequential(nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 4))

    class Liar(Grid):
        def send_and_receive(self, messages: Any) -> list[Any]:
            replies = super().send_and_receive(messages)
            for reply in replies:
                if "smashed" in reply.content:
                    about = reply.content["smashed"]
                    reply.content["smashed"] = ConfigRecord({"frame": about["frame"], "labels": [0]})
            return replies

    client = split_client_app(narrow, at="1", data=EXAMPLE["batch"])
    with pytest.raises(MessageError, match="64 samples and 1 labels"):
        run(Liar(client), split_server_app(narrow, at="1", steps=1))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture
def superlink(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Flower's server for simulations, as `flwr run` would start it and leave it running; the environment."""
    programs = Path(sys.executable).parent
    port, control = str(free_port()), str(free_port())
    environment = os.environ | {
        "FLWR_HOME": str(tmp_path / "flwr"),
        "FLWR_TELEMETRY_ENABLED": "0",
        # Everything that the app needs is here.
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": port,
        "FLWR_LOCAL_CONTROL_API_PORT": control,
        "OMP_NUM_THREADS": "1",
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    command = [programs / "flower-superlink", "--insecure", "--simulation", "--isolation", "subprocess"]
    command += ["--host", "127.0.0.1", "--port", port, "--control-api-address", f"127.0.0.1:{control}"]
    with (tmp_path / "superlink.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                assert server.poll() is None, (tmp_path / "superlink.log").read_text()
                time.sleep(0.1)
        yield environment
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def test_flwr_run_trains_the_example_in_flowers_simulation(superlink: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="flwr[simulation] is not installed")
    flwr = Path(sys.executable).with_name("flwr")
    done = subprocess.run(
        [flwr, "run", APP, "--stream"],
        env=superlink,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    told = done.stdout + done.stderr + (tmp_path / "superlink.log").read_text()
    assert done.returncode == 0, told
    steps = re.findall(r"step \d+: loss ([\d.]+), smashed data ([\d.]+) times smaller", told)
    losses, savings = ([float(step[n]) for step in steps] for n in (0, 1))
    assert len(losses) == 3, told
    assert losses[0] > losses[1] > losses[2], losses
    assert losses[2] < 0.5
    assert min(savings) > 14
