"""Records add up as `cutlayer compare` adds them up, whatever else is in the file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cutlayer.config.schema import Config
from cutlayer.dashboard.run_view import RunView
from cutlayer.dashboard.watcher import Watcher
from cutlayer.report.run_summary import summarize
from cutlayer.training.records import read
from cutlayer.training.train import train


def test_agrees_with_compare_in_the_middle_of_an_epoch_and_at_the_end(
    configure: Callable[..., Config],
) -> None:
    config = configure("codec.up=ms:ratio=0.9,bits=2", "codec.down=qu:bits=8")
    directory = train(config).directory
    view = RunView()
    records = list(read(directory / "records.jsonl"))
    for record in records[:-3]:
        view.add(record)
    assert view.epoch == 2
    assert view.step == records[-4]["global_step"]
    for record in records[-3:]:
        view.add(record)
    summary = summarize(directory)
    rows = {f"{row['direction']}/{row['kind']}": row for row in view.traffic}
    assert {key: row["sent"] for key, row in rows.items()} == {
        key: n for key, n in summary.bytes.items() if "/" in key and n
    }
    assert sum(row["raw"] for row in rows.values()) == summary.uncompressed
    assert view.latest["accuracy"] == summary.to_json()["accuracy"]
    assert len(view.loss.points()) == summary.steps
    assert view.mean_bits == pytest.approx(32 / summary.saving)
    assert view.evaluation_bytes > 0
    assert view.seconds["client_forward"] > 0
    assert set(view.client_bytes) == {"0", "1", "2"}

    watcher = Watcher(directory)
    watcher.look()
    found = watcher.snapshot()
    assert (found["state"], found["step"], found["steps"]) == ("complete", summary.steps, summary.steps)
    assert [row["samples"] for row in watcher.clients()] == [67, 67, 66]
    assert {row["state"] for row in watcher.clients()} == {"over"}
    assert [event["text"] for event in watcher.events] == [
        f"training begins: {summary.steps} steps",
        "the run is complete",
    ]


def test_metrics_are_those_that_the_run_names(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path)
    watcher.look()
    metrics = [{"name": "rmse", "higher": False}, {"name": "within", "percent": True}]
    (tmp_path / "task.json").write_text(json.dumps({"name": "regression", "metrics": metrics}))
    scored = {"kind": "epoch", "global_step": 4, "epoch": 1, "test_loss": 0.5, "rmse": 2.5, "within": 0.75}
    (tmp_path / "records.jsonl").write_text(json.dumps(scored) + "\n")
    watcher.look()
    found = watcher.snapshot()
    assert (found["main"], found["percent"]) == ("rmse", ["within"])
    assert found["latest"] == {"test_loss": 0.5, "rmse": 2.5, "within": 0.75}
    assert watcher.curves()["metrics"] == {"rmse": [(4, 2.5)], "within": [(4, 0.75)]}


@pytest.mark.parametrize("content", ["", "[]", '{"metrics": 3}', '{"metrics": [1]}', '{"metrics": []}'])
def test_damaged_names_of_metrics_are_those_of_classification(tmp_path: Path, content: str) -> None:
    (tmp_path / "task.json").write_text(content)
    watcher = Watcher(tmp_path)
    watcher.look()
    assert watcher.snapshot()["main"] == "accuracy"


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"kind": "step"},
        {"kind": "step", "global_step": "x"},
        {"kind": "step", "global_step": 1, "bytes": 3, "loss": "much", "bits": [1], "seconds": {"a": None}},
        {"kind": "epoch", "global_step": 1, "epoch": "one", "metrics": 1, "client_bytes": 7},
        {"kind": "epoch", "global_step": 1, "accuracy": None, "test_loss": float("nan")},
    ],
)
def test_what_is_not_understood_is_left_out(record: dict[str, Any]) -> None:
    view = RunView()
    view.add(record)
    assert view.traffic == []
    assert view.latest == {}
    assert view.seconds == {}


def test_a_folder_without_a_run_is_shown_as_unknown(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path)
    assert watcher.look() is False
    assert watcher.snapshot()["state"] == "unknown"
    assert watcher.clients() == []
