"""A run is continued to more epochs than it was started with."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cutlayer.config.schema import Config
from cutlayer.errors import CheckpointError
from cutlayer.training.progress import Quiet
from cutlayer.training.records import read
from cutlayer.training.train import train

Configure = Callable[..., Config]
SMALL = ["data.limit=48", "train.clients=2"]


class Noted(Quiet):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def steps(directory: Path) -> list[dict[str, Any]]:
    return [found for found in read(directory / "records.jsonl") if found["kind"] == "step"]


@pytest.mark.parametrize(
    "schedule", [["train.schedule=constant"], ["train.schedule=steps", "train.milestones=[1,3]"]]
)
def test_a_longer_run_is_the_run_that_was_long_from_the_start(
    configure: Configure, tmp_path: Path, schedule: list[str]
) -> None:
    def config(name: str, epochs: int) -> Config:
        return configure(*SMALL, *schedule, f"output.dir={tmp_path / name}", f"train.epochs={epochs}")

    train(config("extended", 2))
    noted = Noted()
    result = train(config("extended", 4), resume=True, progress=noted)
    train(config("whole", 4))
    assert result.epochs == 4
    extended, whole = steps(tmp_path / "extended"), steps(tmp_path / "whole")
    assert [(s["global_step"], s["lr"], s["loss"]) for s in extended] == [
        (s["global_step"], s["lr"], s["loss"]) for s in whole
    ]
    assert "extended from 2 to 4 epochs; the learning rate" in noted.notes[0]


def test_a_cosine_follows_the_longer_curve_from_there_on(configure: Configure, tmp_path: Path) -> None:
    train(configure(*SMALL, "train.epochs=2"))
    noted = Noted()
    train(configure(*SMALL, "train.epochs=4"), resume=True, progress=noted)
    rates = {found["epoch"]: found["lr"] for found in steps(tmp_path / "run")}

    def cosine(epoch: int, of: int) -> float:
        return 0.05 * 0.5 * (1 + math.cos(math.pi * epoch / of))

    assert rates == pytest.approx({1: 0.05, 2: cosine(1, 2), 3: cosine(2, 4), 4: cosine(3, 4)})
    assert "follows the cosine over 4 epochs" in noted.notes[0]


def test_a_run_is_not_continued_to_fewer_epochs(configure: Configure) -> None:
    train(configure(*SMALL, "train.epochs=2"))
    with pytest.raises(CheckpointError, match=r"train.epochs was 2, is 1"):
        train(configure(*SMALL, "train.epochs=1"), resume=True)
