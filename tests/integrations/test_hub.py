"""A run that is pushed to a folder and pulled again is the same run, and has a card that tells what it is."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import safetensors.torch
from typer.testing import CliRunner

from cutlayer.cli import app
from cutlayer.config import schema as config
from cutlayer.config.schema import Config
from cutlayer.errors import CheckpointError, CutlayerError, FileError, UnreachableError
from cutlayer.integrations import hub
from cutlayer.report.run_summary import summarize
from cutlayer.training.load_run import open_run
from cutlayer.training.train import train


@pytest.fixture
def run(configure: Callable[..., Config]) -> Path:
    return train(configure("codec.up=ms:ratio=0.9,bits=2", "train.epochs=1")).directory


def invoke(*words: object) -> object:
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exception or done.stdout


def test_there_and_back(run: Path, tmp_path: Path) -> None:
    assert "published" in str(invoke("push", run, tmp_path / "repository"))
    card = (tmp_path / "repository" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: cutlayer\n")
    accuracy = summarize(run).to_json()["accuracy"]
    for words in ("ms:ratio=0.9,bits=2", f"test accuracy | {accuracy:.4g}", "200 samples at 3 clients"):
        assert words in card, card
    assert str(tmp_path) not in card
    assert "cutlayer eval" in str(invoke("pull", tmp_path / "repository", tmp_path / "again"))
    before, after = open_run(run), open_run(tmp_path / "again")
    assert after.step == before.step
    whole = safetensors.torch.load_file(tmp_path / "repository" / "model.safetensors")
    for name, tensor in before.model.state_dict().items():
        assert tensor.equal(after.model.state_dict()[name])
        assert tensor.equal(whole[name])
    assert summarize(tmp_path / "again").bytes == summarize(run).bytes
    assert f"{summarize(run).to_json()['accuracy']:.2%}" in str(invoke("eval", tmp_path / "again"))


def test_nothing_is_replaced_and_nothing_half_is_pulled(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    hub.write_repository(run, folder)
    with pytest.raises(FileError, match="not empty"):
        hub.write_repository(run, folder)
    with pytest.raises(FileError, match="exists"):
        hub.pull(str(folder), run)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match=r"has no config.toml"):
        hub.pull(str(tmp_path / "empty"), tmp_path / "new")
    (kept,) = (folder / "checkpoints").iterdir()
    data = bytearray(kept.read_bytes())
    data[-5] ^= 1
    kept.write_bytes(data)
    with pytest.raises(CheckpointError):
        hub.pull(str(folder), tmp_path / "new")


def test_what_is_a_folder_and_what_is_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "here").mkdir(parents=True)
    names = {"me/digits": True, "./my-model": False, "../digits": False, "/a/b": False, "runs/here": False}
    assert {name: hub.is_hub_name(name) for name in names} == names


def test_links_of_a_repository_lead_nowhere(run: Path, tmp_path: Path) -> None:
    folder, secret = tmp_path / "repository", tmp_path / "secret"
    hub.write_repository(run, folder)
    secret.write_text(json.dumps({"private": True}))
    (folder / "provenance.json").unlink()
    (folder / "provenance.json").symlink_to(secret)
    assert not (hub.pull(str(folder), tmp_path / "new") / "provenance.json").exists()


def test_a_folder_of_links_leads_nowhere(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    hub.write_repository(run, folder)
    (folder / "checkpoints").rename(tmp_path / "elsewhere")
    (folder / "checkpoints").symlink_to(tmp_path / "elsewhere")
    assert not (hub.pull(str(folder), tmp_path / "new") / "checkpoints").exists()
    (folder / "data.json").rename(tmp_path / "data.json")
    (folder / "data.json").symlink_to(tmp_path / "data.json")
    with pytest.raises(FileError, match=r"has no data.json"):
        hub.pull(str(folder), tmp_path / "another")


CODE = {
    "model.name": "--allow-model pulled_code:make",
    "task.name": "--allow-task pulled_code:make",
    "data.source": "--allow-data pulled_code:make",
}


def test_code_that_a_repository_names_is_not_imported(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "repository"
    hub.write_repository(run, folder)
    (tmp_path / "pulled_code.py").write_text("def make(*_, **__): raise SystemExit\n")
    monkeypatch.syspath_prepend(tmp_path)
    for number, (setting, named) in enumerate(CODE.items()):
        monkeypatch.delitem(sys.modules, "pulled_code", raising=False)
        settings = config.load(run / "config.toml", [f"{setting}=pulled_code:make"])
        (folder / "config.toml").write_text(settings.to_toml())
        new = tmp_path / str(number)
        assert named in " ".join(str(invoke("pull", folder, new)).split())
        assert "pulled_code" not in sys.modules
        assert not new.exists()  # nothing is left that `cutlayer eval` would import it for
        assert "cutlayer eval" in str(invoke("pull", folder, new, *named.split()))


DAMAGED = [
    ("data.json", "{"),
    ("data.json", "[" * 100_000),
    ("data.json", "{}"),
    ("config.toml", "a=" + "[" * 9999),
]


def test_damaged_files_of_a_repository_are_refused_and_nothing_is_left(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    hub.write_repository(run, folder)
    for name, content in DAMAGED:
        whole = (folder / name).read_text()
        (folder / name).write_text(content)
        with pytest.raises(CutlayerError, match=name):
            hub.pull(str(folder), tmp_path / "new")
        assert not (tmp_path / "new").exists()
        (folder / name).write_text(whole)


def test_the_hub_gets_the_same_folder(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []

    def upload_folder(repo_id: str, folder_path: Path) -> None:
        told.append((repo_id, sorted(path.name for path in Path(folder_path).iterdir())))

    fake = SimpleNamespace(
        create_repo=lambda *args, **more: told.append((args, more)), upload_folder=upload_folder
    )
    monkeypatch.setattr(hub, "need", lambda *_: fake)
    monkeypatch.chdir(tmp_path)
    assert hub.push(run, "me/digits", private=True) == "https://huggingface.co/me/digits"
    assert told[0] == (("me/digits",), {"private": True, "exist_ok": True})
    assert "README.md" in told[1][1]  # type: ignore[index]

    def fails(*_: object, **__: object) -> None:
        raise ConnectionError("no route")

    fake.snapshot_download = fails
    with pytest.raises(UnreachableError, match="no route"):
        hub.pull("me/digits", tmp_path / "new")
