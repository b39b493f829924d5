"""A client without PyTorch beside one with it: the run is that of two clients with PyTorch, to rounding."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cutlayer.config.schema import load
from cutlayer.data.spec import DataSpec
from cutlayer.onnx_export.training_half import export_training
from cutlayer.protocol.build import prepare_data

pytest.importorskip("onnx")
SETTINGS = (
    "train.clients=2",
    "codec.up=none",
    "data.partition=even",
    "train.batch_size=16",
    "train.epochs=3",
)
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from cutlayer.cli import main; main()"


def test_a_killed_onnx_client_comes_back_and_the_run_is_that_of_pytorch(cluster, network) -> None:
    folder: Path = cluster.folder
    config = load(None, [*network.SETTINGS, *SETTINGS])
    data = prepare_data(config)
    export_training(config, DataSpec.of(data), folder / "client.onnx")
    mine = data.train.select(data.parts[1])
    np.savez(folder / "mine.npz", images=mine.images.numpy(), labels=mine.labels.numpy())

    def join(*flags: str) -> subprocess.Popen[bytes]:
        words = [
            "join",
            f"127.0.0.1:{cluster.port}",
            "--half",
            "client.onnx",
            "--data",
            "mine.npz",
            "--as",
            "1",
        ]
        command = [sys.executable, "-c", WITHOUT_TORCH, *words, *flags]
        return subprocess.Popen(command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"})

    server = cluster.serve(*SETTINGS)
    with_torch = cluster.join(0)
    # Slow, so that it can be killed in the middle of the run.
    first = join("--link", "1gbit,50ms")
    try:
        network.until(lambda: len(cluster.records()) >= 3, "three steps")
        first.send_signal(signal.SIGKILL)
        first.wait(60)
        second = join()
        assert server.wait() == 0, server.text
        assert second.wait(60) == 0
        assert with_torch.wait() == 0, with_torch.text
    finally:
        first.kill()
    twin = network.plain(cluster.train(*SETTINGS))
    mixed = network.plain(folder / "net")
    losses = [
        [r["loss"] if "loss" in r else r["train_loss"] for r in records if r["kind"] in ("step", "epoch")]
        for records in (mixed, twin)
    ]
    assert len(losses[0]) == len(losses[1]) > 10
    np.testing.assert_allclose(losses[0], losses[1], rtol=2e-2, atol=2e-3)
    ends = [next(r for r in reversed(records) if r["kind"] == "epoch") for records in (mixed, twin)]
    assert abs(ends[0]["accuracy"] - ends[1]["accuracy"]) < 0.05
    assert ends[0]["bytes"] == ends[1]["bytes"]
