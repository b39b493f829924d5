"""Final weights under other codecs: own scores are those of the run, and nothing is evaluated twice."""

import json
import shutil
from pathlib import Path

import pytest

from cutlayer.errors import RecordError
from cutlayer.reproduce.convergence import accuracy
from cutlayer.reproduce.convergence.cross_evaluation import (
    EVALUATIONS,
    WEIGHTS,
    evaluate_all,
    read_scores,
)
from cutlayer.reproduce.convergence.grid import Run, choose, grid
from cutlayer.reproduce.convergence.process_pool import train_all
from cutlayer.reproduce.further_policies import FURTHER
from cutlayer.reproduce.policies import long_run_policies
from cutlayer.training import records
from cutlayer.training.progress_bar import ProgressBar

EMS = "ems:bpe=0.32"


def trained(out: Path, *names: str) -> list[Run]:
    runs = grid("smoke", out, choose([*long_run_policies(), *FURTHER], names), cuts=["medium"])
    train_all(runs, quiet=True)
    return runs


def test_every_model_is_evaluated_with_the_codecs_of_all(tmp_path: Path) -> None:
    (none,) = trained(tmp_path, "none")
    assert (none.directory / WEIGHTS).exists()
    assert evaluate_all(tmp_path, root=".", bar=ProgressBar()) == 1
    before = read_scores(none.directory)["none"]
    (uq,) = trained(tmp_path, "uq")
    # A rival is evaluated with its own codec and the usual ones, and nothing else with its codec.
    assert evaluate_all(tmp_path, root=".", bar=ProgressBar()) == 2
    assert set(read_scores(uq.directory)) == {"none", uq.policy.spec}
    shutil.rmtree(uq.directory)
    runs = trained(tmp_path, "none", "all-30x")
    # A later codec is added to earlier runs, and nothing is evaluated twice.
    assert evaluate_all(tmp_path, root=".", bar=ProgressBar()) == 3
    assert evaluate_all(tmp_path, root=".", bar=ProgressBar()) == 0
    assert read_scores(none.directory)["none"] == before
    for run in runs:
        scores = read_scores(run.directory)
        assert set(scores) == {"none", EMS}
        last = [r for r in records.read(run.directory / "records.jsonl") if r["kind"] == "epoch"][-1]
        assert scores[run.policy.spec]["accuracy"] == last["accuracy"]
        assert scores[run.policy.spec]["loss"] == pytest.approx(last["test_loss"])
        assert scores["none"]["bytes"] > scores["none"]["raw_bytes"] > 4 * scores[EMS]["bytes"]
    table = next(t for t in accuracy.findings(tmp_path).tables if t.id == "matrix")
    assert list(table.columns) == ["cut", "trained with", "epochs", "seeds", "none", EMS]
    for run, row in zip(runs, table.rows, strict=True):
        scores = read_scores(run.directory)
        expected = [100 * scores[spec]["accuracy"] for spec in ("none", EMS)]
        assert list(row) == ["medium", run.policy.label, 2, 1, *map(pytest.approx, expected)]


def test_damaged_scores_are_named(tmp_path: Path) -> None:
    (tmp_path / EVALUATIONS).write_text(json.dumps({"none": {"loss": 1.0}}))
    with pytest.raises(RecordError, match=r"evaluations\.json: is damaged"):
        read_scores(tmp_path)
