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

from cutlayer.config.schema import load
from cutlayer.training import checkpoint
from cutlayer.training.train import train

PROGRAM = """
import sys, torch
torch.set_num_threads(1)
import time
from cutlayer.config.schema import load
from cutlayer.training.progress import Quiet
from cutlayer.training.train import train

class Slow(Quiet):
    # Behind the goal it takes its time, so that it cannot end before it is killed.
    def step(self, record):
        time.sleep(0.1 if record["global_step"] > int(sys.argv[2]) else 0)

train(load(sys.argv[1]), resume=True, progress=Slow())
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
{settings}
[codec]
up = "rt:ratio=0.8"
[output]
tensorboard = false
dir = "{dir}"
"""


ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}


def configured(tmp_path: Path, directory: Path, settings: str) -> Path:
    path = tmp_path / f"{directory.name}.toml"
    path.write_text(CONFIG.format(dir=directory, settings=settings))
    return path


def lines(path: Path) -> int:
    return len(path.read_bytes().splitlines()) if path.exists() else 0


@pytest.mark.parametrize(
    ("settings", "times"), [('sync = "step"', 2), ('sync = 5\nmode = "sequential"', 1)], ids=["step", "sync5"]
)
def test_killed_at_random_steps(network: Any, tmp_path: Path, settings: str, times: int) -> None:
    undisturbed, disturbed = tmp_path / "undisturbed", tmp_path / "disturbed"
    total = train(load(configured(tmp_path, undisturbed, settings))).steps
    config = configured(tmp_path, disturbed, settings)
    path = disturbed / "records.jsonl"
    chance = random.Random(7)
    for _ in range(times):
        begun = lines(path)
        goal = begun + chance.randrange(total // 8, total // 3)
        program = [sys.executable, "-c", PROGRAM, str(config), str(goal)]
        with subprocess.Popen(program, env=ENVIRONMENT) as process:
            while process.poll() is None and lines(path) < goal:
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
    assert train(load(config), resume=True).steps == total
    assert network.plain(disturbed) == network.plain(undisturbed)
    assert checkpoint.steps(disturbed / "checkpoints")[-1] == total
    network.same_weights(undisturbed, disturbed)
