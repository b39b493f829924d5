"""Every number of a record goes to the tracker, under the name that it has in TensorBoard."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from cutlayer.config.schema import Config
from cutlayer.errors import ConfigError, DataError
from cutlayer.integrations.tracker import Tracker
from cutlayer.report.run_summary import summarize
from cutlayer.training.train import train


class Fake(ModuleType):
    """A tracker's module that remembers what it was told."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.told: list[tuple[str, Any]] = []

    def init(self, **about: Any) -> None:
        self.told.append(("init", about))

    def log(self, metrics: dict[str, float], step: int) -> None:
        self.told.append(("log", (step, metrics)))

    def finish(self) -> None:
        self.told.append(("finish", None))


def test_a_run_is_told_step_by_step(
    configure: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Fake()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    config = configure("train.epochs=1")
    tracker = Tracker("wandb", config)
    result = train(config, listeners=[tracker])
    tracker.close()
    assert [kind for kind, _ in fake.told] == ["init", *["log"] * (result.steps + 1), "finish"]
    about = fake.told[0][1]
    assert about["name"] == "run"
    assert about["config"]["train"]["clients"] == 3
    assert "output" not in about["config"], "no places on this machine"
    step, metrics = fake.told[1][1]
    assert step == 1
    assert metrics["step/loss"] > 0
    assert metrics["step/bytes/up/smashed"] > 0
    assert fake.told[-2][1][1]["epoch/accuracy"] == summarize(result.directory).to_json()["accuracy"]


def test_what_is_not_there_is_said_with_its_remedy(
    configure: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="choose from trackio, wandb"):
        Tracker("nobody", configure())
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(DataError, match=r"cutlayer\[wandb\]"):
        Tracker("wandb", configure())
