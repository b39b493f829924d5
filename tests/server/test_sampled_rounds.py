"""Rounds with a sample of the clients: what they compute, what they cost, and that they can be resumed."""

from collections.abc import Callable

import pytest
import torch

from cutlayer.errors import CheckpointError, ConfigError
from cutlayer.training.local_run import LocalRun

Start = Callable[..., LocalRun]
U = ["train.mode=u-shaped", 'model.cut=["layer1", "fc"]', "train.server_batching=fused"]
NET = ["train.clients=6", "data.limit=96", "train.batch_size=8", "train.epochs=2"]
BATCH_NORM = ["model.name=resnet18", "model.width=4", "model.cut=shallow"]


def same(one: LocalRun, other: LocalRun, buffers: bool = True) -> None:
    ours, theirs = one.model(), other.model()
    found = (theirs.state_dict() if buffers else dict(theirs.named_parameters())).items()
    assert all(torch.equal(tensor, ours.state_dict()[name]) for name, tensor in found)


@pytest.mark.parametrize("settings", [[], ["train.mode=sequential"], U], ids=lambda s: " ".join(s[:1]))
def test_a_sample_of_all_clients_trains_as_all_clients_do(start: Start, settings: list[str]) -> None:
    ours, theirs = start(*NET, *settings, "train.clients_per_step=6"), start(*NET, *settings)
    while not ours.done:
        assert ours.step().losses == theirs.step().losses
    # Batch-norm statistics are one moving average here, and one of each client there.
    same(ours, theirs, buffers=False)


@pytest.mark.parametrize(
    "settings",
    [
        BATCH_NORM,
        ["train.sync=3"],
        ["train.sync=epoch", "train.share_differences=true", "codec.sync=qu:bits=6"],
        ["train.accumulate=3"],
        ["train.optimizer=adamw", "train.weighting=samples", "data.partition=dirichlet:alpha=1"],
    ],
    ids=lambda s: s[0],
)
def test_a_run_goes_on_exactly_from_any_step(start: Start, settings: list[str]) -> None:
    run = start(*NET, *settings, "train.clients_per_step=2")
    states = []
    while not run.done:
        tensors, state = run.state()
        states.append(({name: t.clone() for name, t in tensors.items()}, state))
        run.step()
    for tensors, state in states[1:]:
        other = start(*NET, *settings, "train.clients_per_step=2")
        other.restore(tensors, state)
        while not other.done:
            other.step()
        same(run, other)
        assert run.meter.snapshot() == other.meter.snapshot()


def test_who_is_not_asked_costs_nothing(start: Start) -> None:
    run = start("train.clients=40", "data.limit=160", "train.batch_size=4", "train.clients_per_step=3")
    taken = set()
    for _ in range(2):
        taken.update(run.step().step.clients)
    assert set(run.meter.by_client()) == taken
    tensors, state = run.state()
    assert not any(name.startswith("client.") for name in tensors)
    assert state["trained"] == {}
    # Nor when the model is evaluated: only its evaluator is asked.
    assert set(run.evaluate().bytes) >= {"up", "down"}
    assert set(run.meter.by_client()) == taken


def test_batch_norm_statistics_are_those_of_the_clients_who_took_part(start: Start) -> None:
    run = start(*NET, *BATCH_NORM, "train.clients_per_step=2")
    before = run.model().state_dict()
    step = run.step().step
    after = run.model().state_dict()
    name = next(name for name in after if name.endswith("running_mean"))
    own = [run.clients.halves[client] for client in step.clients]
    mean = sum(half.buffer_vector() for half in own) / 2
    assert not torch.equal(before[name], after[name])
    assert torch.allclose(run.server.participation.half.buffer_vector(), mean)


def test_a_checkpoint_of_another_kind_of_run_is_not_continued(start: Start) -> None:
    tensors, state = start(*NET).state()
    with pytest.raises(CheckpointError, match="every client takes part"):
        start(*NET, "train.clients_per_step=2").restore(tensors, state)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["train.clients_per_step=7"], "7 of 6 clients cannot take part"),
        (["train.clients_per_step=2", "train.mode=relay"], "one client takes part at a time"),
        (["train.clients_per_step=2", "train.aggregation=allreduce"], "train.aggregation = server"),
        (["train.clients_per_step=2", "codec.rate=auto"], "codec.rate = fixed"),
        (["train.clients_per_step=-1"], "clients_per_step"),
    ],
)
def test_settings_that_make_no_sense(start: Start, settings: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        start(*NET, *settings)
