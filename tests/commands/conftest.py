from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from cutlayer.cli import app

Run = Callable[..., Result]

#: A run of a second: few digits, a thin model, two clients.
SMALL = ["--clients", 2, "--epochs", 2, "--set", "model.width=4", "--set", "data.limit=120", "--threads", 1]


def invoke(*words: object) -> Result:
    """Run a command line; errors of cutlayer come back as `result.exception`, as `main` sees them."""
    threads = torch.get_num_threads()
    try:
        return CliRunner().invoke(app, [str(word) for word in words])
    finally:
        torch.set_num_threads(threads)


@pytest.fixture
def run() -> Run:
    return invoke


@pytest.fixture
def small() -> list[object]:
    return SMALL


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a small run; tests must not change it."""
    out = tmp_path_factory.mktemp("runs") / "small"
    words = [*SMALL, "--codec", "ms:ratio=0.9,bits=2", "--link", "100mbit,10ms", "--out", out, "--quiet"]
    assert invoke("train", *words).exit_code == 0
    return out


@pytest.fixture(scope="session")
def u_shaped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a small run with labels that stay with the clients."""
    out = tmp_path_factory.mktemp("runs") / "u"
    words = ["--mode", "u-shaped", "--cut", "layer1,fc", "--codec", "qu:bits=8", "--down", "qu:bits=8"]
    assert invoke("train", *SMALL, *words, "--out", out, "--quiet").exit_code == 0
    return out
