"""The Flower app learns over a grid in memory, which hands each message to the client app as Flower would."""

import runpy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed")

from flwr.app import ConfigRecord, Context, RecordDict
from torch import nn

from cutlayer.errors import MessageError
from cutlayer.integrations.flower import split_client_app, split_server_app

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "examples" / "flower-app" / "split_app.py"))


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
