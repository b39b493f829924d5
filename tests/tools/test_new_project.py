"""A new project trains as it is, and no file of a user is replaced."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from cutlayer.cli import app
from cutlayer.errors import FileError
from cutlayer.report.run_summary import summarize
from cutlayer.tools.new_project import FILES, new_project


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Modules of the project are not kept for other tests, which have some of the same names."""
    names = ("my_model", "my_data")
    for name in names:
        sys.modules.pop(name, None)
    yield
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("forgotten")
def test_it_trains_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(app, ["new", str(tmp_path / "mine")])
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == sorted(FILES)
    monkeypatch.chdir(tmp_path / "mine")
    monkeypatch.syspath_prepend(tmp_path / "mine")
    threads = torch.get_num_threads()
    done = CliRunner().invoke(app, ["train", "my.toml", "--quiet", "--set", "train.epochs=2"])
    torch.set_num_threads(threads)
    assert done.exit_code == 0, done.output
    summary = summarize("runs/my")
    assert summary.to_json()["accuracy"] > 0.6, "its classes can be learned; guessing finds a quarter"
    assert summary.uncompressed > 10 * summary.total
    done = CliRunner().invoke(app, ["cuts", "my_model:net", "--input", "1x8x8", "--classes", "4"])
    assert done.exit_code == 0, done.output


def test_no_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "my_model.py").write_text("mine")
    with pytest.raises(FileError, match="exists"):
        new_project(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["my_model.py"]
