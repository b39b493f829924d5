"""A run that is killed again and again ends as if nothing had happened."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from cutlayer.run import checkpoint
from cutlayer.run.records import read

PROGRAM = """
import sys, torch
torch.set_num_threads(1)
from cutlayer.run.config import load
from cutlayer.run.train import train
train(load(sys.argv[1]), resume=True)
"""

CONFIG = """
[model]
width = 4
[data]
limit = 300
partition = "dirichlet:alpha=1"
[train]
clients = 4
epochs = 3
batch_size = 4
lr = 0.05
checkpoint_every = 3
{train}
[codec]
up = "rt:ratio=0.8"
[output]
tensorboard = false
dir = "{dir}"
"""


def start(tmp_path: Path, name: str, train: str) -> tuple[subprocess.Popen[bytes], Path]:
    directory = tmp_path / name
    config = tmp_path / f"{name}.toml"
    config.write_text(CONFIG.format(dir=directory, train=train))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(config)], env=environment)
    return process, directory


def plain(directory: Path) -> list[dict[str, Any]]:
    timed = ("seconds", "simulated_seconds")
    return [
        {k: v for k, v in record.items() if k not in timed} for record in read(directory / "records.jsonl")
    ]


@pytest.mark.parametrize(
    ("train", "times"), [('sync = "step"', 3), ('sync = 5\nmode = "sequential"', 1)], ids=["step", "sync5"]
)
def test_killed_at_random_steps(tmp_path: Path, train: str, times: int) -> None:
    process, undisturbed = start(tmp_path, "undisturbed", train)
    assert process.wait(120) == 0
    total = sum(r["kind"] == "step" for r in plain(undisturbed))
    chance = random.Random(7)
    kills = 0
    for _ in range(times):
        process, disturbed = start(tmp_path, "disturbed", train)
        path = disturbed / "records.jsonl"
        goal = chance.randrange(total // 8, total // 4)
        begun = len(path.read_bytes().splitlines()) if path.exists() else 0
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            lines = len(path.read_bytes().splitlines()) if path.exists() else 0
            if lines >= begun + goal:
                process.send_signal(signal.SIGKILL)
            time.sleep(0.005)
        kills += process.wait(60) == -signal.SIGKILL
    process, disturbed = start(tmp_path, "disturbed", train)
    assert process.wait(120) == 0
    assert kills == times
    assert plain(disturbed) == plain(undisturbed)
    ends = [checkpoint.latest(d / "checkpoints") for d in (undisturbed, disturbed)]
    assert ends[0] is not None
    assert ends[1] is not None
    assert ends[0].step == ends[1].step == total
    assert ends[0].tensors.keys() == ends[1].tensors.keys()
    for name, tensor in ends[0].tensors.items():
        assert torch.equal(tensor, ends[1].tensors[name]), name
