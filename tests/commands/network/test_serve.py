"""`cutlayer serve` takes the flags of `cutlayer train`, and names mistakes before it listens."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main

from cutlayer.cli import app
from cutlayer.errors import ConfigError, CredentialError, CutError, FileError, ModelError


def options(command: str) -> set[str]:
    found: Any = typer.main.get_command(app)
    return {name for parameter in found.commands[command].params for name in parameter.opts}


def test_the_settings_of_a_run_have_the_same_flags_everywhere() -> None:
    own = {"--data", "--root", "--track-bias", "--link"}
    common = options("train") - own
    assert common <= options("serve")
    assert {"--codec", "--model", "--epochs", "--lr", "--set"} <= options("aggregate")
    assert not {"--data", "--root"} & options("serve")


def test_flags_become_settings(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import cutlayer.training.serve

    seen: list[Any] = []

    def stopped(config: Any, listening: Any, **_: Any) -> None:
        seen.append((config, listening))
        raise KeyboardInterrupt

    monkeypatch.setattr(cutlayer.training.serve, "serve", stopped)
    file = tmp_path / "my.toml"
    file.write_text("seed = 3\n[train]\nepochs = 9\nclients = 5\n")
    words = ["--clients", 3, "--epochs", 2, "--lr", 0.5, "--batch", 7, "--codec", "qu:bits=4"]
    words += ["--down", "qu:bits=8", "--sync-codec", "dense", "--mode", "u-shaped", "--cut", "layer1,fc"]
    words += ["--quorum", 2, "--straggler", "drop", "--max-message", 8, "--link", "10mbit"]
    result = run("serve", file, *words, "--set", "train.momentum=0.8", "--out", tmp_path / "run")
    assert result.exit_code == 130
    assert f"cutlayer serve --resume --out {tmp_path / 'run'}" in result.stderr
    ((config, listening),) = seen
    train = config.train
    assert (config.seed, train.clients, train.epochs, train.lr) == (3, 3, 2, 0.5)
    assert (train.batch_size, train.mode, train.momentum) == (7, "u-shaped", 0.8)
    assert config.model.cut == ("layer1", "fc")
    assert (config.codec.up, config.codec.down, config.codec.sync) == ("qu:bits=4", "qu:bits=8", "dense")
    assert (listening.policy.quorum, listening.limits.message, listening.link) == (2, 8 << 20, "10mbit")


@pytest.mark.parametrize(
    ("words", "kind", "says"),
    [
        (["--model", "tinyy"], ModelError, "no model 'tinyy'"),
        (["--cut", "layer9"], CutError, "layer9"),
        (["--codec", "mss"], ConfigError, "no codec 'mss'"),
        (["--quiet", "--json"], ConfigError, "exclude each other"),
        (["--track-bias", "every=1"], SystemExit, "2"),
        (["--set", "train.track_bias=1"], ConfigError, "cutlayer train"),
        (["--resume"], ConfigError, "--resume needs --out"),
        (["--listen", "0.0.0.0:0"], CredentialError, "--insecure"),
    ],
)
def test_mistakes_are_named(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words, kind, says) -> None:
    monkeypatch.chdir(tmp_path)
    error = run("serve", "--clients", 1, *words).exception
    assert isinstance(error, kind)
    assert says in str(error)


def test_another_run_is_never_overwritten(run, trained: Path) -> None:
    settings = tomllib.loads((trained / "config.toml").read_text())
    error = run("serve", "--out", trained).exception
    assert isinstance(error, FileError)
    assert tomllib.loads((trained / "config.toml").read_text()) == settings
