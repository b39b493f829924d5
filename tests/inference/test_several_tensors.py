"""Inference through a cut of several tensors: in one process, and against a server."""

import asyncio
import threading
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from cutlayer.cli import app
from cutlayer.codecs.tensor_set.frame_set import join_frames
from cutlayer.data import load
from cutlayer.errors import MessageError
from cutlayer.inference.predict import Predictor
from cutlayer.inference.remote_model import RemoteModel
from cutlayer.inference.server import ServerSide, Serving, running
from cutlayer.training.load_run import open_run

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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, u_shaped: bool
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
    server = running(trained, Serving("127.0.0.1:0"))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        port = asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(60)
        with RemoteModel(f"127.0.0.1:{port}", trained, batch=40) as model:
            torch.testing.assert_close(model(images), expected)
            assert (model.bytes, model.raw_bytes) == (local.bytes, local.raw_bytes)
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
    side = ServerSide(trained, 4)
    frame = trained_frame(trained)
    for bad in (frame, join_frames({"b": frame, "a": frame})):
        with pytest.raises(MessageError, match="cross the cut"):
            side.admit(bad)


def trained_frame(trained: object) -> bytes:
    import cutlayer

    return cutlayer.codec("dense").encode(torch.zeros(1, 8))
