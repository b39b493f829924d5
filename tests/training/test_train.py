import json
import os
import signal
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cutlayer.config.schema import Config
from cutlayer.errors import CheckpointError, DivergedError, FileError
from cutlayer.training import checkpoint
from cutlayer.training.progress import Quiet
from cutlayer.training.records import read
from cutlayer.training.train import train

Configure = Callable[..., Config]


class Stop(Exception):  # noqa: N818
    pass


class Watch(Quiet):
    """Remembers what it is told, and stops the run after a step."""

    def __init__(self, stop: int = 10**9) -> None:
        self.notes: list[str] = []
        self.stop = stop

    def step(self, record: Any) -> None:
        if record["global_step"] == self.stop:
            raise Stop

    def note(self, text: str) -> None:
        self.notes.append(text)


def records(config: Config) -> list[dict[str, Any]]:
    """All records but for the time that things took."""
    timed = ("seconds", "simulated_seconds")
    return [
        {k: v for k, v in r.items() if k not in timed}
        for r in read(Path(config.output.dir) / "records.jsonl")
    ]


def final(config: Config) -> checkpoint.Checkpoint:
    found = checkpoint.latest(Path(config.output.dir) / "checkpoints")
    assert found is not None
    return found


def test_a_run_leaves_everything_behind(configure: Configure) -> None:
    config = configure("codec.up=ms:ratio=0.9", "link.spec=100mbit,10ms", "output.tensorboard=true")
    state = torch.random.get_rng_state()
    result = train(config)
    assert torch.equal(torch.random.get_rng_state(), state)
    folder = Path(config.output.dir)
    assert tomllib.loads((folder / "config.toml").read_text())["codec"]["up"] == "ms:ratio=0.9,bits=2"
    assert json.loads((folder / "provenance.json").read_text())["seed"] == 0
    assert list((folder / "tensorboard").iterdir())
    found = list(read(folder / "records.jsonl"))
    steps = [r for r in found if r["kind"] == "step"]
    epochs = [r for r in found if r["kind"] == "epoch"]
    assert [r["global_step"] for r in steps] == list(range(1, result.steps + 1))
    assert [r["epoch"] for r in epochs] == [1, 2]
    for record in steps:
        assert record["bytes"]["up/smashed"] > 0
        assert record["raw_bytes"]["up/smashed"] > record["bytes"]["up/smashed"]
        assert 0 < record["error"] < 1
        assert record["seconds"]["client_forward"] > 0
    assert epochs[-1]["accuracy"] == result.scored.metrics["accuracy"]
    assert epochs[-1]["accuracy_top5"] >= epochs[-1]["accuracy"]
    assert sum(r["bytes"]["up"] for r in epochs) == result.bytes["up"]
    # Each step pays at least three latencies: BeginStep, smashed data, gradient.
    assert result.simulated_seconds > result.steps * 0.03
    assert result.simulated_seconds == epochs[-1]["simulated_seconds"]


@pytest.mark.parametrize("stop", [1, 7, 9, 13])
def test_a_resumed_run_is_the_same_run(configure: Configure, tmp_path: Path, stop: int) -> None:
    settings = ["train.checkpoint_every=3", "codec.up=rt:ratio=0.8", "data.partition=dirichlet:alpha=2"]
    whole = configure(*settings, f"output.dir={tmp_path / 'whole'}")
    result = train(whole)
    broken = configure(*settings, f"output.dir={tmp_path / 'broken'}")
    with pytest.raises(Stop):
        train(broken, progress=Watch(stop))
    again = train(broken, resume=True)
    assert records(broken) == records(whole)
    assert again.bytes == result.bytes
    assert (again.scored.loss, again.best_step) == (result.scored.loss, result.best_step)
    a, b = final(whole), final(broken)
    assert a.tensors.keys() == b.tensors.keys()
    assert all(torch.equal(a.tensors[name], b.tensors[name]) for name in a.tensors)


class Signal(Quiet):
    """Presses Ctrl-C in the middle of a run."""

    def step(self, record: Any) -> None:
        if record["global_step"] == 4:
            os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_saves_before_it_stops(configure: Configure, tmp_path: Path) -> None:
    whole = configure(f"output.dir={tmp_path / 'whole'}")
    train(whole)
    config = configure()
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(config, progress=Signal())
    assert signal.getsignal(signal.SIGINT) is handler
    assert checkpoint.steps(Path(config.output.dir) / "checkpoints") == [4]
    train(config, resume=True)
    assert records(config) == records(whole)


def test_a_finished_run_resumes_to_its_result(configure: Configure) -> None:
    config = configure("train.epochs=1")
    result = train(config)
    again = train(config, resume=True)
    assert (again.steps, again.scored, again.bytes) == (result.steps, result.scored, result.bytes)


def test_a_run_is_not_overwritten(configure: Configure) -> None:
    config = configure("train.epochs=1")
    train(config)
    with pytest.raises(FileError, match="Continue it with --resume, or give another"):
        train(config)


def test_a_checkpoint_of_another_run_is_refused(configure: Configure) -> None:
    train(configure("train.epochs=1"))
    with pytest.raises(CheckpointError, match=r"train\.lr was 0\.05, is 0\.5"):
        train(configure("train.epochs=1", "train.lr=0.5"), resume=True)


def test_a_damaged_checkpoint_gives_way_to_the_one_before(configure: Configure, tmp_path: Path) -> None:
    whole = configure(f"output.dir={tmp_path / 'whole'}")
    train(whole)
    config = configure("train.checkpoint_every=2")
    with pytest.raises(Stop):
        train(config, progress=Watch(8))
    newest = sorted((Path(config.output.dir) / "checkpoints").iterdir())[-1]
    data = bytearray(newest.read_bytes())
    data[-3] ^= 1
    newest.write_bytes(data)
    watch = Watch()
    train(config, progress=watch, resume=True)
    assert any("damaged" in note for note in watch.notes)
    assert records(config) == records(whole)


def test_divergence_keeps_the_last_good_checkpoint(configure: Configure) -> None:
    config = configure(
        "train.checkpoint_every=1", "train.lr=1e20", "train.momentum=0", "train.warmup_epochs=0"
    )
    with pytest.raises(DivergedError, match="diverged") as caught:
        train(config)
    for step in checkpoint.steps(Path(config.output.dir) / "checkpoints"):
        assert step <= caught.value.step + 1
        found = checkpoint.load(Path(config.output.dir) / "checkpoints" / f"step-{step:09d}.safetensors")
        assert all(bool(torch.isfinite(t).all()) for t in found.tensors.values())


def test_evaluation_can_be_rare_but_the_last_epoch_has_it(configure: Configure) -> None:
    config = configure("train.epochs=3", "train.evaluate_every=0", "data.limit=40")
    train(config)
    epochs = [r for r in read(Path(config.output.dir) / "records.jsonl") if r["kind"] == "epoch"]
    assert [r["accuracy"] is None for r in epochs] == [True, True, False]


def test_digits_are_learned_under_compression(configure: Configure) -> None:
    config = configure(
        "codec.up=ms", "data.limit=1500", "train.epochs=4", "train.batch_size=16", "model.width=8",
        "train.clients=2",
    )  # fmt: skip
    assert train(config).scored.metrics["accuracy"] > 0.9


@pytest.mark.parametrize(
    ("cut", "codec", "told"),
    [("layer2.relu", "qu:bits=2", True), ("layer2.relu", "none", False), ("layer2", "qu:bits=2", False)],
)
def test_a_max_pool_that_gets_compressed_values_is_told_of(
    configure: Configure, cut: str, codec: str, told: bool
) -> None:
    watch = Watch(stop=1)
    with pytest.raises(Stop):
        train(configure(f"model.cut={cut}", f"codec.up={codec}"), progress=watch)
    assert [note.split(" ")[0] for note in watch.notes] == (["layer2.pool"] if told else [])
