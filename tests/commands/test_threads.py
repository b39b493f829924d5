"""How many threads PyTorch gets, where nobody says."""

import subprocess
import sys

import pytest
import torch

from cutlayer.commands.runs import model_check
from cutlayer.commands.threads import LARGE, use_threads
from cutlayer.config.schema import load


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    torch.set_num_threads(2)


def test_small_models_get_one_and_large_ones_all() -> None:
    use_threads(None, LARGE)
    assert torch.get_num_threads() == 2
    use_threads(None, LARGE / 2)
    assert torch.get_num_threads() == 1


def test_a_user_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    use_threads(3)
    assert torch.get_num_threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    use_threads(None)
    assert torch.get_num_threads() == 3
    use_threads(1)
    assert torch.get_num_threads() == 1


def test_work_is_counted_on_each_side_of_the_cut() -> None:
    config = load(None, ["model.name=resnet18", "model.width=16", "model.cut=shallow"])
    shallow = model_check.forward_pass(config)
    # The whole model: 35 million multiply-adds for an image of CIFAR.
    assert 34e6 < shallow.client + shallow.server < 36e6
    deep = model_check.forward_pass(load(None, ["model.name=resnet18", "model.width=16", "model.cut=deep"]))
    assert shallow.client < deep.client
    assert shallow.client + shallow.server == deep.client + deep.server
    u_shaped = ["train.mode=u-shaped", 'model.cut=["layer1", "fc"]', "model.width=4"]
    both = model_check.forward_pass(load(None, u_shaped))
    assert min(both.client, both.server) > 0


@pytest.mark.parametrize(
    ("settings", "threads"),
    [
        (["model.width=16"], 1),
        (["model.name=resnet18", "model.width=16", "train.batch_size=16"], 1),
        (["model.name=resnet18", "model.width=64", "train.batch_size=32"], 2),
        (["model.name=resnet18", "model.width=16", "train.server_batching=fused", "train.clients=20"], 2),
        # Nobody can say how large it is: its first layer takes no images.
        (["model.name=torch.nn:Identity", "model.cut=layer"], 1),
    ],
)
def test_a_run_decides_by_its_model(settings: list[str], threads: int) -> None:
    model_check.threads_for_training(None, load(None, settings))
    assert torch.get_num_threads() == threads


def test_threads_that_wait_sleep() -> None:
    # It counts only if it is set before PyTorch is loaded.
    program = (
        "import os, sys; sys.argv[1:] = ['--version']\n"
        "from cutlayer.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert os.environ['OMP_WAIT_POLICY'] == 'PASSIVE' and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
