import itertools
import math

import pytest
import torch

from cutlayer.config.sections import TrainConfig
from cutlayer.protocol.build import make_plan
from cutlayer.protocol.plan import LearningRate, Plan
from cutlayer.wire.messages.types import Share


def plan(samples: list[int], **settings: object) -> Plan:
    return make_plan(TrainConfig(clients=len(samples), batch_size=4, epochs=2, **settings), samples)


def test_clients_without_batches_sit_out() -> None:
    found = plan([8, 17, 4])
    assert found.steps_per_epoch == 5
    assert found.total == 10
    steps = [found.at(number) for number in range(10)]
    assert [step.clients for step in steps[:5]] == [(0, 1, 2), (0, 1), (1,), (1,), (1,)]
    assert [step.samples for step in steps[:5]] == [(4, 4, 4), (4, 4), (4,), (4,), (1,)]
    assert [step.step for step in steps] == [0, 1, 2, 3, 4] * 2
    assert [step.last for step in steps] == [False, False, False, False, True] * 2
    assert {step.share for step in steps} == {Share.GRADIENTS}


@pytest.mark.parametrize(
    ("sync", "due"), [(3, [2, 5, 8]), ("epoch", [4, 9]), (100, [])], ids=["3", "epoch", "100"]
)
def test_weights_are_due(sync: object, due: list[int]) -> None:
    found = plan([20, 12], sync=sync)
    shared = [found.at(number).share for number in range(found.total)]
    assert [number for number, share in enumerate(shared) if share] == due
    assert set(shared) <= {Share.WEIGHTS, Share.NOTHING}


def test_one_client_has_nobody_to_share_with() -> None:
    for mode in ("parallel", "relay"):
        found = plan([20], mode=mode)
        assert {found.at(number).share for number in range(found.total)} == {Share.NOTHING}


@pytest.mark.parametrize(
    ("sync", "turns"),
    [
        ("step", [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)]),
        (2, [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2)]),
        ("epoch", [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]),
    ],
    ids=str,
)
def test_relay_turns(sync: object, turns: list[tuple[int, int]]) -> None:
    found = plan([10, 8], mode="relay", sync=sync)
    steps = [found.at(number) for number in range(found.total)]
    assert [(step.clients[0], step.step) for step in steps] == turns * 2
    for now, following in itertools.pairwise(steps):
        assert now.heir == following.clients[0]
        assert (now.share == Share.WEIGHTS) == (now.clients != following.clients)


def test_drop_last() -> None:
    found = plan([10, 8], drop_last=True)
    assert found.steps_per_epoch == 2
    assert found.at(1).samples == (4, 4)


def rates(steps_per_epoch: int = 1, **settings: object) -> list[float]:
    lr = LearningRate(**{"lr": 0.1, "epochs": 200, **settings})
    return [
        lr.at(epoch, step, steps_per_epoch) for epoch in range(lr.epochs) for step in range(steps_per_epoch)
    ]


def test_schedules_are_those_of_pytorch() -> None:
    def torchs(make: object) -> list[float]:
        opt = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        scheduler = make(opt)  # type: ignore[operator]
        found = []
        for _ in range(200):
            found.append(opt.param_groups[0]["lr"])
            opt.step()
            scheduler.step()
        return found

    from torch.optim import lr_scheduler as s

    assert rates(schedule="cosine") == pytest.approx(torchs(lambda o: s.CosineAnnealingLR(o, 200)), abs=1e-12)
    steps = rates(schedule="steps", milestones=(60, 120, 160), gamma=0.2)
    assert steps == pytest.approx(torchs(lambda o: s.MultiStepLR(o, [60, 120, 160], 0.2)))
    assert rates(schedule="every", period=30) == pytest.approx(torchs(lambda o: s.StepLR(o, 30, 0.1)))
    assert rates(schedule="constant") == [0.1] * 200


def test_warm_up_rises_with_each_step() -> None:
    found = rates(4, epochs=3, schedule="constant", warmup_epochs=2)
    assert found[:8] == pytest.approx([0.1 * i / 8 for i in range(1, 9)])
    assert found[8:] == [0.1] * 4
    assert math.isclose(rates(4, epochs=2, warmup_epochs=0, schedule="constant")[0], 0.1)
    half = rates(4, epochs=1, schedule="constant", warmup_epochs=0.5)
    assert half == pytest.approx([0.05, 0.1, 0.1, 0.1])


def test_linear_falls_with_each_step_from_the_top_of_the_warm_up() -> None:
    found = rates(4, epochs=3, schedule="linear", warmup_epochs=1)
    assert found[:4] == pytest.approx([0.025, 0.05, 0.075, 0.1])
    assert found[4:] == pytest.approx([0.1 * i / 9 for i in range(8, 0, -1)])
    assert rates(2, epochs=1, schedule="linear") == pytest.approx([0.1 * 2 / 3, 0.1 / 3])


@pytest.mark.parametrize(("sync", "length"), [("step", 1), (3, 3), ("epoch", 5)])
def test_a_sample_of_the_clients_stays_for_a_round(sync: object, length: int) -> None:
    found = plan([20] * 9, sync=sync, clients_per_step=4)
    rounds = [found.at(number).clients for number in range(found.total)]
    assert {len(clients) for clients in rounds} == {4}
    for number, clients in enumerate(rounds):
        assert found.round(number) == (number // length, number - number % length)
        assert clients == rounds[number - number % length] == found.sampled(number - number % length)
    assert len(set(rounds[::length])) > 1
    shares = {found.at(number).share for number in range(length - 1, found.total, length)}
    assert shares == {Share.UPDATE if sync == "step" else Share.WEIGHTS}


def test_those_without_a_batch_are_not_drawn() -> None:
    found = plan([4, 12, 12, 0], clients_per_step=2)
    assert found.at(1).clients == found.at(2).clients == (1, 2)
    # A run whose clients come later: its epochs are as long as when it began.
    found.join(3, 100)
    assert found.total == 6
    assert any(3 in found.at(number).clients for number in range(found.total))
    assert found.sampled(0, among=[1, 3]) == (1, 3)
