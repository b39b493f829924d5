"""Other tasks on the command line: a table by name alone, compared under the names of its metrics."""

import json
from pathlib import Path

import pytest

from cutlayer.errors import ConfigError, TaskError
from cutlayer.training.records import read


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, beside which runs go."""
    found = tmp_path_factory.mktemp("tables")
    rows = [f"{i % 7},{i * i % 11},{i % 7 * 2 + i * i % 11}" for i in range(120)]
    (found / "houses.csv").write_text("\n".join(["a,b,price", *rows]) + "\n")
    return found


def words(folder: Path, out: str) -> list[object]:
    settings = ["data.target=price", "model.width=8", "train.lr=0.01", "output.tensorboard=false"]
    sets = [part for setting in settings for part in ("--set", setting)]
    common = ["--data", folder / "houses.csv", "--model", "mlp", "--cut", "layer1", "--codec", "qu:bits=8"]
    return [*common, *sets, "--clients", 2, "--epochs", 2, "--threads", 1, "--out", folder / out]


def test_a_table_is_trained_evaluated_and_compared(run, trained: Path, folder: Path) -> None:
    shown = run("train", *words(folder, "run")).stdout
    for word in ("108 training samples of houses", "mse ", "mae ", "r2 ", "2 epochs: mse"):
        assert word in " ".join(shown.split())
    assert "cutlayer predict" not in shown
    last = [r for r in read(folder / "run" / "records.jsonl") if r["kind"] == "epoch"][-1]
    (found,) = json.loads(run("eval", folder / "run", "--json").stdout)
    assert [found[name] for name in ("mse", "mae", "r2")] == [last[name] for name in ("mse", "mae", "r2")]
    compared = json.loads(run("compare", folder / "run", trained, "--json").stdout)
    assert compared[0]["best_mse"] == min(
        r["mse"] for r in read(folder / "run" / "records.jsonl") if "mse" in r
    )
    assert compared[1]["best_accuracy"] >= compared[1]["accuracy"]
    assert "accuracy" not in compared[0]
    table = run("compare", folder / "run", trained).stdout
    assert "Metrics against bytes" in table
    assert "MSE against bytes" in run("compare", folder / "run").stdout
    page = folder / "report.md"
    assert run("report", folder / "run", trained, "--format", "markdown", "--out", page).exit_code == 0
    assert "best mse" in page.read_text()
    refused = run("predict", folder / "run").exception
    assert isinstance(refused, ConfigError)
    assert "another task" in str(refused)


def test_an_option_that_a_task_does_not_have_is_named(run, folder: Path) -> None:
    wrong = run("train", *words(folder, "wrong"), "--set", "task.los=l1").exception
    assert isinstance(wrong, TaskError)
    assert "did you mean 'loss'" in str(wrong)
