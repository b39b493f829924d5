"""A server names a model, or a file does: this process imports it only if its own user allowed it."""

import json
import math
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from cutlayer.client.participant import Participant
from cutlayer.config.schema import from_mapping
from cutlayer.errors import FileError, ModelError, RefusedError
from cutlayer.inference.client_half import ClientSide
from cutlayer.protocol.handshake import config_from_offer, settings_for_clients
from cutlayer.wire.messages.protobuf import message_class

# Leaves a file behind wherever it is imported, as code of an attacker would.
MODEL = """
import os, pathlib
from torch import nn

pathlib.Path(os.environ["MARKS"], str(os.getpid())).touch()

def net(classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, classes))
"""
NAME = "foreign_model:net"
CODE = ("tempfile:mkdtemp", "sys:exit", "http.server:test", "os:getcwd", NAME)


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the marks of processes that imported the model."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "foreign_model.py").write_text(MODEL)
    (tmp_path / "marks").mkdir()
    monkeypatch.setenv("MARKS", str(tmp_path / "marks"))
    monkeypatch.syspath_prepend(tmp_path / "code")
    return tmp_path / "marks"


def offer(name: str, cut: str = "1", **data: str) -> object:
    """What a server offers whose model has that name."""
    settings = json.loads(settings_for_clients(from_mapping({"train": {"clients": 1}})))
    settings["model"] |= {"name": name, "cut": cut}
    settings["data"] |= data
    return message_class("Offer")(client=0, clients=1, settings=json.dumps(settings))


@pytest.mark.parametrize("name", CODE)
def test_a_client_does_not_import_what_a_server_names(marks: Path, name: str) -> None:
    with pytest.raises(ModelError, match=f"--allow-model {name}"):
        Participant("digits", whole=True).prepare(offer(name))
    assert not list(marks.iterdir())


def test_a_client_builds_what_its_user_gave_it(marks: Path) -> None:
    def own(classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Linear(16, classes))

    device = Participant("digits", whole=True, models={NAME: own, "mine": own})
    for name in (NAME, "mine"):
        device.settings = ""
        assert device.prepare(offer(name)).classes == 10
    assert not list(marks.iterdir())
    with pytest.raises(ModelError, match="no model 'other'"):
        Participant("digits", whole=True, models={"mine": own}).prepare(offer("other"))


def test_a_server_does_not_say_where_a_client_has_its_data(marks: Path) -> None:
    forged = offer("tiny", source=NAME, root="/elsewhere", cache_dir="/elsewhere")
    found = config_from_offer(forged.settings, {"source": "digits", "root": ".", "cache_dir": None})
    assert (found.data.source, found.data.root, found.data.cache_dir) == ("digits", ".", None)
    assert not list(marks.iterdir())


def half(path: Path, name: str, **card: object) -> Path:
    """An exported client's half that names a model."""
    about = {
        "part": "client",
        "settings": {"model": {"name": name, "cut": "1"}},
        "card": {
            "name": "digits",
            "shape": [1, 8, 8],
            "pixels": True,
            "classes": 10,
            "class_names": None,
            "augment": "none",
            "mean": [0.0],
            "std": [1.0],
            "size": None,
            "samples": [10],
            **card,
        },
    }
    tensors = {"1.weight": torch.zeros(16, 64), "1.bias": torch.zeros(16)}
    safetensors.torch.save_file(tensors, path, {"cutlayer": json.dumps(about)})
    return path


@pytest.mark.parametrize("name", CODE)
def test_an_exported_half_does_not_import_what_it_names(marks: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match=f"--allow-model {name}"):
        ClientSide.load(half(tmp_path / "half.safetensors", name))
    assert not list(marks.iterdir())


@pytest.mark.parametrize(
    "lie",
    [{"shape": [1 << 40]}, {"shape": "x"}, {"classes": 1 << 40}, {"std": [0.0]}, {"samples": [1 << 40]}],
)
def test_an_exported_half_of_impossible_data_is_refused(tmp_path: Path, lie: dict[str, object]) -> None:
    with pytest.raises(FileError, match="is not the client's half of a run"):
        ClientSide.load(half(tmp_path / "half.safetensors", "tiny", **lie))


@pytest.mark.parametrize("about", ["[" * 100_000, "[]", "null", '{"settings": {}}', "\x1b"])
def test_a_file_that_says_nothing_of_itself_is_no_half(tmp_path: Path, about: str) -> None:
    path = tmp_path / "half.safetensors"
    safetensors.torch.save_file({"1.bias": torch.zeros(16)}, path, {"cutlayer": about})
    with pytest.raises(FileError, match="is not the client's half of a run"):
        ClientSide.load(path)


@pytest.mark.parametrize("std", [[0.0], [math.nan], [], [1.0, 1.0]])
def test_a_welcome_with_impossible_statistics_is_refused(std: list[float]) -> None:
    device = Participant("digits", whole=True)
    device.prepare(offer("tiny", cut="layer1"))
    with pytest.raises(RefusedError, match="welcome"):
        device.begin(message_class("Welcome")(era="e", mean=[0.5], std=std))


def test_predict_imports_it_only_when_told(cluster, marks: Path) -> None:
    half(cluster.folder / "half.safetensors", NAME)
    env = {"PYTHONPATH": str(marks.parent / "code"), "MARKS": str(marks)}
    words = ("predict", "half.safetensors", "--data", "digits", "--server", "127.0.0.1:9")
    refused = cluster.nursery.start(*words, cwd=cluster.folder, **env)
    assert refused.wait() == 1
    assert f"--allow-model {NAME}" in refused.text
    assert not list(marks.iterdir())
    # Nobody listens there, but the half was built.
    allowed = cluster.nursery.start(*words, "--allow-model", NAME, cwd=cluster.folder, **env)
    assert allowed.wait() == 1
    assert "nobody listens there" in allowed.text
    assert [path.name for path in marks.iterdir()] == [str(allowed.pid)]


def test_clients_of_a_server_with_a_model_of_its_own(cluster, marks: Path) -> None:
    env = {"PYTHONPATH": str(marks.parent / "code"), "MARKS": str(marks)}
    own = (f"model.name={NAME}", "model.cut=1", "codec.up=none")
    server = cluster.serve(*own, **env)
    wary = cluster.join(0, **env)
    assert wary.wait() == 1
    assert f"--allow-model {NAME}" in wary.text
    assert "Traceback" not in wary.text
    assert str(wary.pid) not in {path.name for path in marks.iterdir()}
    willing = [cluster.join(number, "--allow-model", NAME, **env) for number in range(3)]
    assert server.wait() == 0, server.text
    assert [client.wait() for client in willing] == [0, 0, 0], willing[0].text
    assert {path.name for path in marks.iterdir()} == {str(p.pid) for p in (server, *willing)}


def test_a_name_to_allow_is_checked(cluster) -> None:
    words = ("--data", "digits", "--allow-model", "no-such form")
    wrong = cluster.nursery.start("join", "127.0.0.1:9", *words, cwd=cluster.folder)
    assert wrong.wait() == 1
    assert "package.module:factory" in wrong.text


def test_a_model_that_a_package_installs_is_allowed(monkeypatch: pytest.MonkeyPatch, marks: Path) -> None:
    info = marks.parent / "code" / "foreign-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[cutlayer.models]\nforeign = {NAME}\n")
    for name in ("foreign", NAME):
        assert Participant("digits", whole=True).prepare(offer(name)).classes == 10
    assert list(marks.iterdir())
