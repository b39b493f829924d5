"""Runs on every device that is there, in every precision, with clipped and accumulated gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cutlayer.config.schema import Config, load
from cutlayer.errors import ConfigError
from cutlayer.protocol.device import resolve_device
from cutlayer.split.weights import Updater, UpdateRule
from cutlayer.training.local_run import LocalRun

Start = Callable[..., LocalRun]
DEVICES = [
    "cpu",
    *(f"cuda:{i}" for i in range(torch.cuda.device_count())),
    *(["mps"] if torch.backends.mps.is_available() else []),
]
SMALL = ["data.limit=48", "train.clients=2"]
U_SHAPED = ["train.mode=u-shaped", 'model.cut=["layer1","fc"]']


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("mode", [[], U_SHAPED], ids=["parallel", "u-shaped"])
def test_a_run_trains_and_is_tested(start: Start, device: str, precision: str, mode: list[str]) -> None:
    run = start(*SMALL, *mode, f"train.device={device}", f"train.precision={precision}", "codec.up=qu:bits=6")
    losses = [run.step().loss for _ in range(2)]
    assert all(0 < loss < 10 for loss in losses)
    assert run.evaluate().samples > 0
    assert {p.device for p in run.server.half.parameters} == {torch.device(device)}
    assert all(p.dtype == torch.float32 for p in run.model().parameters())


def test_bfloat16_is_near_float32_and_not_equal(start: Start) -> None:
    exact, rounded = (start(*SMALL, f"train.precision={name}") for name in ("float32", "bfloat16"))
    first = [(exact.step().loss, rounded.step().loss) for _ in range(2)]
    assert all(a == pytest.approx(b, rel=0.05) for a, b in first)
    assert all(a != b for a, b in first)


def test_a_step_with_gradients_clipped_to_a_norm(start: Start) -> None:
    run = start(*SMALL, "train.clip_gradient=0.001", "train.momentum=0", "train.weight_decay=0")
    before = [p.detach().clone() for p in run.server.half.parameters]
    lr = run.step().step.lr
    moved = [(p.detach() - b) / lr for p, b in zip(run.server.half.parameters, before, strict=True)]
    norm = torch.linalg.vector_norm(torch.cat([m.flatten() for m in moved]))
    assert float(norm) == pytest.approx(0.001, rel=0.05)


def test_accumulated_gradients_update_weights_once(start: Start) -> None:
    run = start(*SMALL, "train.accumulate=3")
    weight = run.server.half.parameters[0]
    before, head = weight.detach().clone(), run.clients.halves[0].weight_vector()
    for _ in range(2):
        run.step()
        assert torch.equal(weight, before)
        assert torch.equal(run.clients.halves[0].weight_vector(), head)
    run.step()
    assert not torch.equal(weight, before)
    assert not torch.equal(run.clients.halves[0].weight_vector(), head)


def test_two_gradients_make_the_update_of_their_mean() -> None:
    a, b = (torch.nn.Parameter(torch.tensor([1.0, 2.0])) for _ in range(2))
    Updater([b], torch.optim.SGD([b], lr=0.1), UpdateRule()).apply([torch.tensor([2.0, 0.5])], 0.1)
    updater = Updater([a], torch.optim.SGD([a], lr=0.1), UpdateRule(accumulate=2))
    updater.apply([torch.tensor([1.0, 1.0])], 0.1)
    kept = updater.state()
    again = Updater([a], torch.optim.SGD([a], lr=0.1), UpdateRule(accumulate=2))
    again.restore(kept)
    again.apply([torch.tensor([3.0, 0.0])], 0.1)
    assert torch.equal(a, b)
    assert not again.state()


@pytest.mark.parametrize(
    "more", [["train.accumulate=2"], ["train.clip_gradient=0.1", "train.precision=bfloat16"]]
)
def test_resumes_exactly(resumes_exactly: Any, more: list[str]) -> None:
    resumes_exactly([*SMALL, *more], 3)


@pytest.mark.parametrize("name", ["meta", "gpu", "cuda:99", "mps:7" if "mps" not in DEVICES else "cuda:99"])
def test_a_device_that_is_not_there_is_an_error_before_data_are_loaded(
    configure: Callable[..., Config], name: str
) -> None:
    from cutlayer.training.train import train

    with pytest.raises(ConfigError, match=r"train\.device"):
        train(configure(f"train.device={name}", "data.source=/nowhere/at/all"))
    with pytest.raises(ConfigError, match=r"train\.device"):
        resolve_device(name)


def test_defaults_leave_a_run_what_it_was() -> None:
    known = load().identity()["train"]
    assert not {"device", "precision", "clip_gradient", "accumulate"} & known.keys()
    assert load(None, ["train.accumulate=2"]).identity()["train"]["accumulate"] == 2
    with pytest.raises(ConfigError, match=r"train\.accumulate"):
        load(None, ["train.accumulate=2", "train.sync=epoch"])
