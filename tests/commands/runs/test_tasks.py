"""Other tasks on the command line: a table by name alone, compared under the names of its metrics."""

import csv
import io
import json
from pathlib import Path

import pytest

from cutlayer.errors import ConfigError, DataError, TaskError
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
    # Runs of other tasks have a table of their own, with their names and their best.
    first, second = table.index("MSE against bytes"), table.index("Accuracy against bytes")
    assert " run " in table[first:second]
    assert "r2" in table[first:second]
    assert "r2" not in table[second:]
    page = folder / "report.md"
    assert run("report", folder / "run", trained, "--format", "markdown", "--out", page).exit_code == 0
    assert "best mse" in page.read_text()


def test_values_are_predicted_in_the_units_of_the_targets(run, folder: Path) -> None:
    out = folder / "scaled"
    scaled = ["--set", "task.shift=10", "--set", "task.scale=5", "--quiet"]
    assert run("train", *words(folder, "scaled"), *scaled).exit_code == 0
    result = run("predict", out)
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert list(rows[0]) == ["sample", "price", "truth"]
    last = [r for r in read(out / "records.jsonl") if r["kind"] == "epoch"][-1]
    errors = [float(row["price"]) - float(row["truth"]) for row in rows]
    assert sum(e * e for e in errors) / len(rows) == pytest.approx(last["mse"], rel=1e-3)
    assert f"mse {last['mse']:.4g}, mae {last['mae']:.4g}" in result.stderr
    # Nobody knows the price of these: all rows are predicted.
    lines = (folder / "houses.csv").read_text().splitlines()
    (folder / "new.csv").write_text("\n".join(line.rpartition(",")[0] for line in lines[:6]) + "\n")
    new = list(csv.DictReader(io.StringIO(run("predict", out, "--data", folder / "new.csv").stdout)))
    assert [list(row) for row in new] == [["sample", "price"]] * 5
    (folder / "wrong.csv").write_text("a\n1\n")
    wrong = run("predict", out, "--data", folder / "wrong.csv").exception
    assert isinstance(wrong, DataError)
    assert "the model takes [2]" in str(wrong)


def test_classes_and_labels_of_a_table_are_predicted(run, folder: Path) -> None:
    words = [f"{i % 7},{i % 5},{'high' if i % 7 > 3 else 'low'},{i % 2},{int(i % 7 > 3)}" for i in range(60)]
    (folder / "kinds.csv").write_text("\n".join(["a,b,kind,odd,large", *words]) + "\n")
    common = ["--data", folder / "kinds.csv", "--model", "mlp", "--cut", "layer1", "--clients", 2]
    common += ["--epochs", 1, "--threads", 1, "--quiet", "--set", "model.width=8", "--codec", "qu:bits=8"]
    common += ["--set", 'data.features=["a", "b"]', "--set", "output.tensorboard=false"]
    classes = ["--set", "data.target=kind", "--out", folder / "classes"]
    labels = ["--set", 'data.target=["odd", "large"]', "--set", "task.name=multilabel"]
    for each in (classes, [*labels, "--out", folder / "labels"]):
        assert run("train", *common, *each).exit_code == 0
    row = next(csv.DictReader(io.StringIO(run("predict", folder / "classes").stdout)))
    assert row["name"] == ("low", "high")[row["label"] == "0"]
    result = run("predict", folder / "labels", "--limit", 3)
    row = next(csv.DictReader(io.StringIO(result.stdout)))
    assert list(row) == ["sample", "odd", "large", "truth_odd", "truth_large"]
    assert 0 < float(row["odd"]) < 1
    assert row["truth_odd"] in ("0", "1")
    assert "micro_f1" in result.stderr


def test_outputs_that_are_no_rows_are_left_to_python(run, folder: Path) -> None:
    (folder / "book.txt").write_text("to be or not to be " * 40)
    small = ["model.width=8", "model.blocks=1", "model.heads=2", "data.context=8", "output.tensorboard=false"]
    sets = [part for setting in small for part in ("--set", setting)]
    common = ["--data", folder / "book.txt", "--model", "gpt", "--cut", "embedding", "--clients", 2, *sets]
    assert run("train", *common, "--epochs", 1, "--quiet", "--out", folder / "text").exit_code == 0
    refused = run("predict", folder / "text").exception
    assert isinstance(refused, ConfigError)
    assert "another task" in str(refused)


def test_an_option_that_a_task_does_not_have_is_named(run, folder: Path) -> None:
    wrong = run("train", *words(folder, "wrong"), "--set", "task.los=l1").exception
    assert isinstance(wrong, TaskError)
    assert "did you mean 'loss'" in str(wrong)
