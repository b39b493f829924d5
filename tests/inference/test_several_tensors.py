"""Inference through a cut of several tensors: in one process, and against a server."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import cutlayer
from cutlayer.cli import app
from cutlayer.codecs.tensor_set.frame_set import join_frames
from cutlayer.data import load
from cutlayer.errors import DataError, MessageError
from cutlayer.inference.predict import Predictor
from cutlayer.inference.remote_model import RemoteModel
from cutlayer.inference.server import ServerSide
from cutlayer.training.load_run import open_run

Served = Callable[..., AbstractContextManager[tuple[str, Any]]]
NET = """
import torch
from torch import nn

class Skips(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(64, 16), nn.Linear(16, 8), nn.Linear(24, 24)
        self.fc = nn.Linear(24 + 64, classes)

    def forward(self, x):
        x = x.flatten(1)
        dark = x < 0.1
        a = self.a(x).relu()
        b = self.b(a)
        return self.fc(torch.cat([self.c(torch.cat([a, b], 1)), torch.where(dark, -1.0, 1.0)], 1))
"""


@pytest.mark.parametrize("u_shaped", [False, True])
def test_remote_and_local_predictions_are_the_same(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, u_shaped: bool
) -> None:
    (tmp_path / "skip_nets.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    words = ["--model", "skip_nets:Skips", "--clients", "2", "--epochs", "1", "--set", "data.limit=60"]
    words += ["--cut", "b,fc", "--mode", "u-shaped"] if u_shaped else ["--cut", "b"]
    words += [
        "--codec",
        "qu:bits=6",
        "--set",
        'codec.tensors.relu="ms"',
        "--threads",
        "1",
        "--out",
        "run",
        "--quiet",
    ]
    result = CliRunner().invoke(app, ["train", *words])
    assert result.exit_code == 0, result.output
    trained = open_run("run")
    images = load("digits", "test").images[:40]
    local = Predictor(trained)
    expected = local.logits(images)
    with served(trained) as (address, _), RemoteModel(address, trained, batch=40) as model:
        torch.testing.assert_close(model(images), expected)
        assert (model.bytes, model.raw_bytes) == (local.bytes, local.raw_bytes)
    side = ServerSide(trained, 4)
    frame = trained_frame(trained)
    for bad in (frame, join_frames({"b": frame, "a": frame})):
        with pytest.raises(MessageError, match="cross the cut"):
            side.admit(bad)


def trained_frame(trained: object) -> bytes:
    return cutlayer.codec("dense").encode(torch.zeros(1, 8))


@pytest.mark.parametrize("by_name", [False, True])
def test_models_with_several_inputs(served: Served, several_nets: Any, tmp_path: Path, by_name: bool) -> None:
    ids, values = torch.arange(120).reshape(40, 3) % 5, torch.linspace(-1, 1, 120).reshape(40, 3)
    inputs: Any = {"ids": ids, "values": values} if by_name else (ids, values)
    model, labels, out = several_nets.TwoInputs(2), ids[:, 0] % 2, tmp_path / "run"
    data = (inputs, labels)
    settings = {"clients": 2, "epochs": 1, "codec": "qu:bits=8", "out": out}
    result = cutlayer.train(model, at="mix", train=data, test=data, **settings)
    trained = cutlayer.load_run(out, model=model)
    local = Predictor(trained)
    expected = local.logits(inputs)
    torch.testing.assert_close(expected, result.model(ids, values), rtol=0.1, atol=0.1)
    with served(trained) as (address, _), RemoteModel(address, trained, batch=16) as remote:
        torch.testing.assert_close(remote(inputs), expected, rtol=0.1, atol=0.1)
        assert remote.raw_bytes == local.raw_bytes
        with pytest.raises(DataError, match="but the model takes a"):
            remote({"ids": ids} if by_name else (values, ids))
        with pytest.raises(DataError, match=r"\[39, 40\] samples"):
            remote({"ids": ids[1:], "values": values} if by_name else (ids[1:], values))
    labels_of = [prediction.label for prediction in local(inputs, 16)]
    assert labels_of == expected.argmax(1).tolist()
