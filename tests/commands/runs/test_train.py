import json
import shutil
import tomllib

import pytest

from cutlayer.errors import (
    CheckpointError,
    ConfigError,
    CutError,
    DivergedError,
    FileError,
    ModelError,
)
from cutlayer.training import checkpoint
from cutlayer.training.records import read


def test_a_run_shows_the_partition_before_and_the_traffic_after(run, tmp_path, small):
    out = tmp_path / "run"
    result = run("train", *small, "--codec", "ms:ratio=0.9,bits=2", "--out", out)
    assert result.exit_code == 0, result.output
    before, after = result.stdout.split("epoch 1/2", 1)
    assert "training samples of digits" in before
    assert "codec up ms:ratio=0.9,bits=2" in before
    for word in ("epoch 2/2", "up: smashed", "down: gradients", "uncompressed", "cutlayer eval"):
        assert word in after
    for name in (
        "config.toml",
        "data.json",
        "provenance.json",
        "records.jsonl",
        "checkpoints",
        "tensorboard",
    ):
        assert (out / name).exists()


def test_a_compressed_sync_is_compared_with_float32(run, tmp_path, small):
    words = ["--epochs", 1, "--sync-codec", "dense:dtype=float16", "--out", tmp_path / "run"]
    result = run("train", *small, *words)
    (line,) = [line for line in result.stdout.splitlines() if "up: sync" in line]
    # Half the size but for headers and batch-norm statistics, which stay as they are.
    assert 1.5 < float(line.split()[-1].rstrip("x")) < 2


def test_flags_override_the_file_and_set_overrides_flags(run, tmp_path):
    file = tmp_path / "my.toml"
    file.write_text("seed = 3\n[train]\nepochs = 9\nclients = 5\n[model]\nwidth = 4\n[data]\nlimit = 120\n")
    out = tmp_path / "run"
    words = ["--epochs", 1, "--clients", 3, "--set", "train.clients=2", "--quiet", "--out", out]
    result = run("train", file, *words, "--threads", 1)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    resolved = tomllib.loads((out / "config.toml").read_text())
    assert resolved["seed"] == 3
    assert (resolved["train"]["epochs"], resolved["train"]["clients"]) == (1, 2)


def test_json_lines_end_with_the_result(run, tmp_path, small):
    result = run("train", *small, "--json", "--out", tmp_path / "run")
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert [r["kind"] for r in records].count("epoch") == 2
    assert records[-1]["kind"] == "result"
    assert records[-1]["epochs"] == 2
    assert records[:-1] == list(read(tmp_path / "run" / "records.jsonl"))


def test_directories_are_made_up_and_never_reused(run, tmp_path, monkeypatch, small):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        words = [*small, "--epochs", 1, "--set", "output.tensorboard=false", "--quiet"]
        assert run("train", "--recipe", "demo/digits-sp", *words).exit_code == 0
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["demo-digits-sp", "demo-digits-sp-2"]


def test_a_run_that_was_cut_short_is_resumed_from_its_own_settings(run, trained, tmp_path):
    whole = (trained / "records.jsonl").read_text().splitlines()
    out = tmp_path / "cut"
    shutil.copytree(trained, out)
    steps = checkpoint.steps(out / "checkpoints")
    checkpoint.path_of(out / "checkpoints", steps[-1]).unlink()
    result = run("train", "--resume", "--out", out, "--quiet", "--threads", 1)
    assert result.exit_code == 0, result.output
    again = (out / "records.jsonl").read_text().splitlines()
    assert len(again) == len(whole)
    for line, other in zip(whole, again, strict=True):
        first, second = json.loads(line), json.loads(other)
        assert first.get("loss") == second.get("loss")
        assert first["bytes"] == second["bytes"]
        assert first.get("accuracy") == second.get("accuracy")


def test_a_run_is_not_resumed_under_other_settings(run, trained):
    error = run("train", "--resume", "--out", trained, "--lr", 0.5).exception
    assert isinstance(error, CheckpointError)
    assert "train.lr was 0.1, is 0.5" in str(error)


def test_ctrl_c_says_how_to_go_on(run, tmp_path, monkeypatch, small):
    import cutlayer.training.train

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cutlayer.training.train, "train", interrupted)
    result = run("train", *small, "--out", tmp_path / "run", "--quiet")
    assert result.exit_code == 130
    assert "cutlayer train --resume --out" in result.stderr


def test_divergence_stops_the_run_and_says_where(run, tmp_path, small):
    error = run("train", *small, "--lr", 1e30, "--quiet", "--out", tmp_path / "run").exception
    assert isinstance(error, DivergedError)
    assert "diverged at step" in str(error)


@pytest.mark.parametrize(
    ("words", "kind", "says"),
    [
        (["absent.toml"], ConfigError, "absent.toml: cannot be read"),
        (["--recipe", "demo/digit"], ConfigError, "no recipe"),
        (["--recipe", "demo/digits-ms", "x.toml"], ConfigError, "not both"),
        (["--codec", "mss"], ConfigError, "no codec 'mss'"),
        (["--set", "train.epoch=3"], ConfigError, "did you mean 'epochs'"),
        (["--set", "nonsense"], ConfigError, "section.name=value"),
        (["--link", "fast"], ConfigError, "a link is written as"),
        (["--mode", "u-shaped"], ConfigError, "needs two names"),
        (["--resume"], ConfigError, "--resume needs --out"),
        (["--quiet", "--json"], ConfigError, "exclude each other"),
        # Told before data are loaded: there are none.
        (["--data", "absent", "--model", "tinyy"], ModelError, "Did you mean 'tiny'"),
        (["--data", "absent", "--cut", "layer9"], CutError, "Valid cuts are: "),
        (["--data", "absent", "--model", "absent_package:net"], ModelError, "no module 'absent_package'"),
        (["--data", "absent", "--model", "torch.nn:Identity"], ModelError, "has no cut 'medium'"),
    ],
)
def test_mistakes_are_named(run, tmp_path, monkeypatch, words, kind, says):
    monkeypatch.chdir(tmp_path)
    error = run("train", *words).exception
    assert isinstance(error, kind)
    assert says in str(error)
    assert list(tmp_path.iterdir()) == []


def test_another_run_is_never_overwritten(run, trained, small):
    before = (trained / "records.jsonl").read_bytes()
    assert isinstance(run("train", *small, "--out", trained).exception, FileError)
    assert (trained / "records.jsonl").read_bytes() == before


def test_a_run_is_extended_and_a_missing_device_is_named(run, tmp_path, small):
    out = tmp_path / "run"
    assert run("train", *small, "--epochs", 1, "--out", out).exit_code == 0
    result = run("train", "--resume", "--out", out, "--epochs", 2)
    assert result.exit_code == 0, result.output
    assert "extended from 1 to 2 epochs; the learning rate follows the cosine over 2 epochs" in result.output
    assert [r["epoch"] for r in read(out / "records.jsonl") if r["kind"] == "epoch"] == [1, 2]
    failed = run("train", *small, "--device", "cuda:99", "--out", tmp_path / "other")
    assert isinstance(failed.exception, ConfigError)
    assert "train.device: cuda:99 is not available" in str(failed.exception)
