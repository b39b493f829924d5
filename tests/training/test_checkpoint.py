import random
import signal
import subprocess
import sys
import time

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cutlayer.errors import CheckpointError
from cutlayer.training import checkpoint

W = torch.arange(12.0).view(3, 4)
TENSORS = {
    "weight": W,
    "tied": W,
    "row": W[1],
    "transposed": W.t(),
    "batches": torch.tensor(7),
    "empty": torch.zeros(0, 3),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "mask": torch.tensor([True, False]),
}
STATE = {"epoch": 1, "rates": [0.1, 1e-300], "best": None}


def test_a_checkpoint_comes_back_exactly(tmp_path):
    path = checkpoint.save(tmp_path / "new", 5, TENSORS, STATE, run={"seed": 1})
    found = checkpoint.latest(tmp_path / "new", run={"seed": 1})
    assert (found.step, found.state, found.path, found.run) == (5, STATE, path, {"seed": 1})
    assert set(found.tensors) == set(TENSORS)
    for name, tensor in TENSORS.items():
        assert found.tensors[name].dtype == tensor.dtype
        assert torch.equal(found.tensors[name], tensor)
    assert set(safetensors.torch.load_file(path)) == set(TENSORS)  # plain for everybody


def test_no_checkpoint_is_none(tmp_path):
    assert checkpoint.latest(tmp_path) is None
    assert checkpoint.latest(tmp_path / "absent") is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.data())
def test_any_damage_falls_back_to_the_one_before_and_says_so(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("run")
    checkpoint.save(folder, 1, TENSORS, STATE)
    path = checkpoint.save(folder, 2, TENSORS, STATE)
    good = path.read_bytes()
    if data.draw(st.booleans()):
        bad = good[: data.draw(st.integers(0, len(good) - 1))]
    else:
        changed = bytearray(good)
        changed[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
        bad = bytes(changed)
    path.write_bytes(bad)
    said: list[str] = []
    found = checkpoint.latest(folder, said.append)
    if found.step == 2:  # the change was in what the format does not use: padding, or order
        assert all(torch.equal(found.tensors[name], TENSORS[name]) for name in TENSORS)
        assert found.state == STATE
        return
    assert found.step == 1
    assert "damaged" in said[0]
    assert path.name in said[0]
    # A damaged one must not push good ones out.
    checkpoint.save(folder, 3, TENSORS, STATE)
    checkpoint.keep(folder, last=2)
    assert checkpoint.steps(folder) == [1, 3]


def test_only_damaged_ones_are_an_error_not_a_fresh_start(tmp_path):
    checkpoint.save(tmp_path, 1, TENSORS, STATE).write_bytes(b"")
    with pytest.raises(CheckpointError, match="no checkpoint is whole"):
        checkpoint.latest(tmp_path)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    checkpoint.save(tmp_path, 1, TENSORS, STATE, run={"model": {"cut": "medium"}, "seed": 0, "at": ("a",)})
    with pytest.raises(CheckpointError, match=r"another run: model.cut was 'medium', is 'deep'"):
        checkpoint.latest(tmp_path, run={"model": {"cut": "deep"}, "seed": 0, "at": ["a"]})
    with pytest.raises(CheckpointError, match="extra was 'not set', is None"):
        checkpoint.latest(tmp_path, run={"model": {"cut": "medium"}, "seed": 0, "at": ["a"], "extra": None})
    assert checkpoint.latest(tmp_path, run={"at": ("a",), "model": {"cut": "medium"}, "seed": 0}) is not None


def test_the_last_few_and_the_best_are_kept(tmp_path):
    for step in (1, 5, 20, 300, 1000):
        checkpoint.save(tmp_path, step, TENSORS, STATE)
    (tmp_path / "step-000000007.safetensors.123.partial").touch()
    checkpoint.keep(tmp_path, last=2, best=5)
    assert checkpoint.steps(tmp_path) == [5, 300, 1000]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_full_disk_is_named_and_leaves_the_last_one_valid(tmp_path):
    checkpoint.save(tmp_path, 1, TENSORS, STATE)
    script = f"""
import resource, torch
from cutlayer.errors import CheckpointError
from cutlayer.training import checkpoint
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    checkpoint.save({str(tmp_path)!r}, 2, {{"w": torch.zeros(10000)}}, {{}})
except CheckpointError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "cannot be written" in done.stdout
    assert "earlier ones are intact" in done.stdout
    assert checkpoint.steps(tmp_path) == [1]
    assert checkpoint.latest(tmp_path).step == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_a_process_killed_while_saving_leaves_a_whole_checkpoint(tmp_path):
    script = f"""
import torch
from cutlayer.training import checkpoint
found = checkpoint.latest({str(tmp_path)!r})
step = found.step if found else 0
print("ready", flush=True)
while True:
    step += 1
    tensors = {{str(i): torch.full((20000,), float(step)) for i in range(5)}}
    checkpoint.save({str(tmp_path)!r}, step, tensors, {{"step": step}})
    checkpoint.keep({str(tmp_path)!r}, last=2)
"""
    reached = 0
    for _ in range(3):
        worker = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        worker.stdout.readline()
        time.sleep(random.uniform(0.02, 0.25))
        worker.send_signal(signal.SIGKILL)
        worker.communicate()
        said: list[str] = []
        found = checkpoint.latest(tmp_path, said.append)
        if found is None:
            assert reached == 0
            continue
        assert said == []
        assert found.step >= reached
        reached = found.step
        assert found.state == {"step": reached}
        assert all(torch.equal(t, torch.full((20000,), float(reached))) for t in found.tensors.values())
    assert reached > 0
