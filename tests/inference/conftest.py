from pathlib import Path

import pytest
from typer.testing import CliRunner

from cutlayer.cli import app


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run of a second; tests must not change it."""
    out = tmp_path_factory.mktemp("runs") / "small"
    words = ["--clients", 2, "--epochs", 1, "--set", "model.width=4", "--set", "data.limit=120"]
    words += ["--threads", 1, "--codec", "ms:ratio=0.9,bits=2", "--out", out, "--quiet"]
    assert CliRunner().invoke(app, ["train", *map(str, words)]).exit_code == 0
    return out
