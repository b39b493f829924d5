"""Mode async in one process: the virtual clock, the age of gradients, and runs that go on exactly."""

import json
import math
from collections.abc import Callable

import pytest
import torch

from cutlayer.server.asynchronous.mode import AsyncMode
from cutlayer.server.asynchronous.update import discount
from cutlayer.split.state import client_state, server_state
from cutlayer.training.local_run import LocalRun

Start = Callable[..., LocalRun]
ASYNC = ("train.mode=async", "data.limit=192")
UNEVEN = (*ASYNC, "train.buffer=2", "link.speeds=[1, 1, 0.1]", "link.jitter=0.3")


def test_equal_clients_and_a_full_buffer_give_the_bits_of_parallel(start: Start) -> None:
    ours, theirs = start(*ASYNC, "train.buffer=3"), start("data.limit=192")
    assert ours.server.plan.total == theirs.server.plan.total
    for _ in range(6):
        one, other = ours.step(), theirs.step()
        assert one.losses == other.losses
        assert one.ages == [0, 0, 0]
    kept = ours.server.participation
    assert isinstance(kept, AsyncMode)
    for a, b in (
        (server_state(ours.server.half), server_state(theirs.server.half)),
        (client_state(kept.model.half), client_state(theirs.clients.halves[0])),
    ):
        assert a.keys() == b.keys()
        # A client of parallel has batch-norm statistics of its own; the evaluation averages them.
        assert all(torch.equal(a[name], b[name]) for name in a if "running" not in name)
    assert ours.evaluate().loss == pytest.approx(theirs.evaluate().loss, rel=1e-5)


def test_a_slow_client_is_waited_for_by_nobody_and_its_gradients_count_less(start: Start) -> None:
    run = start(*UNEVEN)
    results = [run.step() for _ in range(24)]
    assert all(len(result.losses) == 2 for result in results)
    old = [
        age
        for result in results
        for client, age in zip(result.step.clients, result.ages or [], strict=True)
        if client == 2
    ]
    fast = sum(client != 2 for result in results for client in result.step.clients)
    assert len(old) * 5 < fast
    assert min(old) > 3
    assert [discount(age) for age in (0, 3, 8)] == [1.0, 0.5, pytest.approx(1 / 3)]
    # Time is that of the virtual clock, and only grows.
    times = [result.simulated for result in results]
    assert times == sorted(times)
    assert times[-1] > 0


def test_what_is_too_old_is_discarded_and_counted(start: Start) -> None:
    run = start(*UNEVEN, "train.max_staleness=1")
    results = [run.step() for _ in range(24)]
    assert sum(result.discarded for result in results) > 0
    assert max(age for result in results for age in result.ages or []) <= 1
    assert all(2 not in result.step.clients for result in results)
    record = results[-1].record()
    assert record["staleness"] == results[-1].ages
    assert record["discarded"] == results[-1].discarded


@pytest.mark.parametrize("steps", [0, 1, 9])
def test_a_run_goes_on_exactly(start: Start, steps: int) -> None:
    settings = (*UNEVEN, "link.spec=1mbit,1ms; 8mbit", "codec.up=rt:ratio=0.8", "codec.sync=qu:bits=8")
    settings = (*settings, "codec.feedback=false", "train.momentum=0.5")
    whole, first, second = (start(*settings) for _ in range(3))
    results = [whole.step() for _ in range(14)]
    for _ in range(steps):
        first.step()
    tensors, state = first.state()
    second.restore(tensors, json.loads(json.dumps(state, allow_nan=False)))
    if steps:
        assert second.evaluate().loss == first.evaluate().loss
    for expected in results[steps:]:
        found = second.step()
        assert found.losses == expected.losses
        assert (found.ages, found.bytes, found.raw_bytes) == (
            expected.ages,
            expected.bytes,
            expected.raw_bytes,
        )
        assert found.simulated == pytest.approx(expected.simulated, rel=1e-12)
        assert not math.isnan(found.loss)
    assert second.meter.snapshot() == whole.meter.snapshot()


def test_an_evaluation_in_the_middle_changes_nothing(start: Start) -> None:
    ours, theirs = start(*UNEVEN), start(*UNEVEN)
    for _ in range(8):
        assert ours.step().losses == theirs.step().losses
        ours.evaluate()


def test_weights_by_samples_count_small_batches_less(start: Start) -> None:
    settings = (*ASYNC, "data.limit=30", "train.clients=2", "train.buffer=2")
    by_clients = start(*settings, "train.weighting=clients")
    by_samples = start(*settings, "train.weighting=samples")
    steps = [(by_clients.step(), by_samples.step()) for _ in range(3)]
    # Batches of 8 and 7 samples: the first updates differ as soon as one is smaller.
    assert {n for one, _ in steps for n in one.step.samples} == {7, 8}
    assert steps[0][0].losses == steps[0][1].losses
    assert steps[-1][0].losses != steps[-1][1].losses
