"""Two runs in two threads of one process do not disturb each other, and nothing else either."""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch

import cutlayer
from cutlayer.config.schema import Config
from cutlayer.models import build
from cutlayer.seeding import seeded
from cutlayer.training.local_run import LocalRun
from cutlayer.training.records import read
from cutlayer.training.train import train


def losses(directory: Path) -> list[float]:
    return [found["loss"] for found in read(directory / "records.jsonl") if found["kind"] == "step"]


@pytest.mark.usefixtures("plain_model")
def test_runs_with_dropout_in_threads_are_those_that_run_alone(
    configure: Callable[..., Config], tmp_path: Path
) -> None:
    def config(name: str, seed: int) -> Config:
        return configure(
            f"output.dir={tmp_path / name}",
            "model.name=plain_nets:dropping",
            "model.cut=4",
            f"seed={seed}",
            "data.limit=80",
            "train.clients=2",
        )

    torch.manual_seed(3)
    before = torch.get_rng_state()
    for seed in (0, 1):
        train(config(f"alone-{seed}", seed))
    errors: list[BaseException] = []

    def run(seed: int) -> None:
        try:
            train(config(f"thread-{seed}", seed))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not errors
    for seed in (0, 1):
        assert losses(tmp_path / f"thread-{seed}") == losses(tmp_path / f"alone-{seed}")
    assert losses(tmp_path / "alone-0") != losses(tmp_path / "alone-1")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_is_cut_in_one_thread_while_another_one_trains(start: Callable[..., LocalRun]) -> None:
    run = start("data.limit=48", "train.clients=2")  # torch.fx patches nn.Module while it traces
    done = threading.Event()
    errors: list[BaseException] = []

    def cut() -> None:
        try:
            while not done.is_set():
                cutlayer.cut(build("tiny", classes=10, width=4), at="layer2")
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=cut)
    thread.start()
    try:
        losses = [run.step().loss for _ in range(6)]
        run.evaluate()
    finally:
        done.set()
        thread.join(60)
    assert not errors
    again = start("data.limit=48", "train.clients=2")
    assert losses == [again.step().loss for _ in range(6)]


def test_the_generator_is_as_before_also_after_an_error() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    with suppress(ValueError), seeded(7):
        first = torch.rand(3)
        raise ValueError
    with seeded(7), seeded(8):
        torch.rand(3)
    with seeded(7):
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.get_rng_state(), before)
