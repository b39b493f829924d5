import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from cutlayer.commands.runs import report
from cutlayer.errors import FileError, RecordError
from cutlayer.report.run_summary import summarize

Report = Callable[..., Result]


@pytest.fixture
def make() -> Report:
    app = typer.Typer()
    report.register(app)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


def test_runs_side_by_side(make: Report, trained: Path, u_shaped: Path, tmp_path: Path) -> None:
    page = tmp_path / "pages" / "report.html"
    done = make(trained, u_shaped, trained, "--out", page)
    assert done.exit_code == 0, done.output
    assert str(page) in done.output.replace("\n", "")
    text = page.read_text()
    for part in (
        "Accuracy against bytes",
        "Accuracy against smashed data",
        "Accuracy against all traffic",
        "Training loss",
        "Accuracy against time",
        "on the link",
        "u-shaped",
    ):
        assert part in text, part
    assert str(trained.parent) not in text, "no places on this machine"


def test_without_a_link_there_is_no_time_on_it(make: Report, u_shaped: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert make(u_shaped, "--out", page).exit_code == 0
    assert "Accuracy against bytes" in page.read_text()
    assert "Accuracy against time" not in page.read_text()
    assert "on the link" not in page.read_text()


def test_tables_have_the_figures_of_the_records(make: Report, trained: Path, tmp_path: Path) -> None:
    done = make(trained, "--format", "csv", "--out", tmp_path, "--json")
    assert done.exit_code == 0, done.output
    files = [Path(name) for name in json.loads(done.stdout)["files"]]
    assert [file.name for file in files] == ["runs-runs.csv", "runs-traffic.csv"]
    header, row = (line.split(",") for line in files[1].read_text().splitlines())
    sent = summarize(trained).bytes
    assert {key: int(value) for key, value in zip(header[1:], row[1:], strict=True)} == {
        key.replace("/", ": "): value for key, value in sent.items() if "/" in key and value
    }


def test_a_run_that_is_still_going_is_shown_as_far_as_it_is(
    make: Report, trained: Path, tmp_path: Path
) -> None:
    going = shutil.copytree(trained, tmp_path / "going")
    lines = (going / "records.jsonl").read_text().splitlines(keepends=True)
    # Two steps of the first epoch, and a third that is being written.
    (going / "records.jsonl").write_text("".join(lines[:2]) + lines[2][:40])
    done = make(going, "--format", "markdown", "--out", tmp_path / "r.md")
    assert done.exit_code == 0, done.output
    text = (tmp_path / "r.md").read_text()
    assert "| going | ms:ratio=0.9,bits=2 | - | - |" in text
    assert "| 0 | 2 | parallel |" in text, "no epoch yet, two clients"
    (going / "records.jsonl").write_text("")
    assert isinstance(make(going, "--out", tmp_path / "r.html").exception, RecordError)


def test_runs_of_one_name_are_told_apart(make: Report, trained: Path, tmp_path: Path) -> None:
    for place in ("a", "b"):
        shutil.copytree(trained, tmp_path / place / "run")
    done = make(
        tmp_path / "a" / "run", tmp_path / "b" / "run", "--format", "markdown", "--out", tmp_path / "r.md"
    )
    assert done.exit_code == 0, done.output
    text = (tmp_path / "r.md").read_text()
    assert "| a/run |" in text
    assert "| b/run |" in text


def test_mistakes(make: Report, trained: Path, tmp_path: Path) -> None:
    assert isinstance(make(tmp_path / "nowhere").exception, FileError)
    (tmp_path / "result.json").write_text("{}")
    assert isinstance(make(tmp_path).exception, RecordError)
    (tmp_path / "file").write_text("")
    assert isinstance(make(trained, "--out", tmp_path / "file" / "r.html").exception, FileError)
