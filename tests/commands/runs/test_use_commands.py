"""What can be done with a trained run: eval, predict, export, compare."""

import csv
import io
import json
import shutil

import pytest
import safetensors.torch
import torch

from cutlayer.errors import CheckpointError, ConfigError, DataError, FileError, RecordError
from cutlayer.models import build
from cutlayer.training import checkpoint
from cutlayer.training.load_run import open_run
from cutlayer.training.records import read


def last_epoch(folder):
    return [r for r in read(folder / "records.jsonl") if r["kind"] == "epoch"][-1]


@pytest.mark.parametrize("which", ["trained", "u_shaped"])
def test_eval_repeats_the_last_evaluation_exactly(run, request, which):
    folder = request.getfixturevalue(which)
    (found,) = json.loads(run("eval", folder, "--json").stdout)
    assert found["loss"] == last_epoch(folder)["test_loss"]
    assert found["accuracy"] == last_epoch(folder)["accuracy"]


def test_eval_tries_other_codecs(run, trained):
    words = ["--codec", "none", "--codec", "ms:ratio=0.99,bits=2"]
    found = json.loads(run("eval", trained, *words, "--json").stdout)
    assert [row["codec"] for row in found] == ["none", "ms:ratio=0.99,bits=2"]
    assert found[0]["bytes"]["up/smashed"] > 5 * found[1]["bytes"]["up/smashed"]
    assert "smashed data up" in run("eval", trained).stdout


@pytest.mark.parametrize("which", ["trained", "u_shaped"])
def test_predict_agrees_with_eval(run, request, which):
    folder = request.getfixturevalue(which)
    result = run("predict", folder)
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    right = sum(row["label"] == row["truth"] for row in rows)
    assert right / len(rows) == last_epoch(folder)["accuracy"]
    assert f"accuracy {right / len(rows):.2%}" in result.stderr
    assert len(run("predict", folder, "--limit", 7).stdout.splitlines()) == 8


def test_predict_writes_files_and_takes_another_codec(run, trained, tmp_path):
    for name in ("p.csv", "p.jsonl"):
        assert run("predict", trained, "--out", tmp_path / name, "--codec", "none").exit_code == 0
    lines = (tmp_path / "p.jsonl").read_text().splitlines()
    rows = list(csv.DictReader(io.StringIO((tmp_path / "p.csv").read_text())))
    assert [json.loads(line)["label"] for line in lines] == [int(row["label"]) for row in rows]


def test_predict_takes_images_that_nobody_labelled(run, trained, tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name in ("b.png", "a.png"):
        image.new("L", (20, 16), 128).save(tmp_path / name)
    rows = list(csv.DictReader(io.StringIO(run("predict", trained, "--data", tmp_path).stdout)))
    assert [row["sample"] for row in rows] == ["a.png", "b.png"]
    assert "truth" not in rows[0]
    one = run("predict", trained, "--data", tmp_path / "a.png")
    assert len(one.stdout.splitlines()) == 2


def test_the_exported_whole_is_the_model_that_was_evaluated(run, trained, tmp_path):
    out = tmp_path / "m.safetensors"
    assert run("export", trained, "--out", out).exit_code == 0
    model = build("tiny", classes=10, width=4, in_channels=1, image_size=8).eval()
    model.load_state_dict(safetensors.torch.load_file(out))
    x = torch.rand(3, 1, 8, 8)
    with torch.no_grad():
        assert torch.equal(model(x), open_run(trained).model(x))


@pytest.mark.parametrize("which", ["trained", "u_shaped"])
def test_the_exported_halves_make_the_whole(run, request, which, tmp_path):
    folder = request.getfixturevalue(which)
    parts = {}
    for part in ("whole", "client", "server"):
        assert run("export", folder, "--part", part, "--out", tmp_path / f"{part}.safetensors").exit_code == 0
        parts[part] = safetensors.torch.load_file(tmp_path / f"{part}.safetensors")
    assert set(parts["client"]) | set(parts["server"]) == set(parts["whole"])
    assert not set(parts["client"]) & set(parts["server"])
    for name, tensor in (parts["client"] | parts["server"]).items():
        assert torch.equal(tensor, parts["whole"][name])


def test_a_model_is_exported_where_the_data_are_not(run, trained, tmp_path):
    folder = shutil.copytree(trained, tmp_path / "moved")
    config = (folder / "config.toml").read_text().replace('source = "digits"', 'source = "gone"')
    (folder / "config.toml").write_text(config)
    assert run("export", folder, "--out", tmp_path / "m.safetensors").exit_code == 0
    assert isinstance(run("eval", folder).exception, DataError)


def test_a_checkpoint_can_be_chosen(run, trained, tmp_path):
    first = checkpoint.steps(trained / "checkpoints")[0]
    out = tmp_path / "m.safetensors"
    assert f"step {first}," in run("export", trained, "--checkpoint", first, "--out", out).stdout
    assert run("export", trained, "--checkpoint", "best", "--out", out, "--force").exit_code == 0


def test_a_damaged_checkpoint_falls_back_and_says_so(run, trained, tmp_path):
    folder = shutil.copytree(trained, tmp_path / "damaged")
    steps = checkpoint.steps(folder / "checkpoints")
    checkpoint.path_of(folder / "checkpoints", steps[-1]).write_bytes(b"no checkpoint")
    result = run("export", folder, "--out", tmp_path / "m.safetensors")
    assert "damaged" in result.stderr
    assert f"step {steps[-2]}," in result.stdout


def test_compare_puts_accuracy_beside_bytes(run, trained, u_shaped):
    found = json.loads(run("compare", trained, u_shaped, "--json").stdout)
    assert [row["run"] for row in found] == ["small", "u"]
    first = found[0]
    steps = [r for r in read(trained / "records.jsonl") if r["kind"] == "step"]
    assert first["total"] == sum(r["bytes"]["up"] + r["bytes"]["down"] for r in steps)
    assert first["accuracy"] == last_epoch(trained)["accuracy"]
    assert first["uncompressed"] > first["total"]
    assert first["simulated_seconds"] > 0
    shown = run("compare", trained, u_shaped).stdout
    assert "time on link" in shown
    assert "qu:bits=8" in shown


def test_mistakes_are_named(run, trained, tmp_path):
    assert isinstance(run("eval", tmp_path).exception, FileError)
    assert isinstance(run("eval", trained, "--codec", "mss").exception, ConfigError)
    assert isinstance(run("export", trained, "--out", tmp_path / "m.pt").exception, FileError)
    assert isinstance(run("export", trained, "--checkpoint", "newest").exception, ConfigError)
    assert isinstance(run("export", trained, "--checkpoint", 999).exception, CheckpointError)
    assert isinstance(run("predict", trained, "--out", tmp_path / "p.txt").exception, FileError)
    assert isinstance(run("predict", trained, "--out", tmp_path / "no" / "p.csv").exception, FileError)
    assert isinstance(run("predict", trained, "--data", tmp_path / "none").exception, DataError)
    shutil.copy(trained / "config.toml", tmp_path)
    assert isinstance(run("compare", tmp_path).exception, FileError)
    (tmp_path / "records.jsonl").touch()
    assert isinstance(run("compare", tmp_path).exception, RecordError)
    (tmp_path / "data.json").write_text("{}")
    assert isinstance(run("export", tmp_path).exception, FileError)


def test_export_asks_before_it_replaces_a_file(run, trained, tmp_path, monkeypatch):
    out = tmp_path / "m.safetensors"
    out.write_text("mine")
    refused = run("export", trained, "--out", out)
    assert isinstance(refused.exception, FileError)
    assert "--force" in str(refused.exception)
    asked = []

    def confirm(text, **_):
        asked.append(text)
        return len(asked) > 1

    monkeypatch.setattr("cutlayer.commands.ask.typer.confirm", confirm)
    monkeypatch.setattr(
        "cutlayer.commands.ask.sys.stdin", type("Terminal", (), {"isatty": lambda self: True})()
    )
    monkeypatch.setattr("typer.testing.CliRunner.invoke", _invoke_here)
    with pytest.raises(FileError):
        run("export", trained, "--out", out)
    assert out.read_text() == "mine"
    run("export", trained, "--out", out)
    assert len(asked) == 2
    assert out.stat().st_size > 1000


def _invoke_here(self, app, args, **_):
    """Without replacing standard input, which `CliRunner` does."""
    app(args, standalone_mode=False)


def test_compare_takes_a_folder_of_runs(run, trained, u_shaped, tmp_path):
    for name, folder in (("a", trained), ("b", u_shaped)):
        shutil.copytree(folder, tmp_path / "runs" / name)
    found = json.loads(run("compare", tmp_path / "runs", tmp_path / "runs" / "a", "--json").stdout)
    assert [row["run"] for row in found] == ["a", "b"], "each once"
    (tmp_path / "empty").mkdir()
    assert isinstance(run("compare", tmp_path / "empty").exception, FileError)
