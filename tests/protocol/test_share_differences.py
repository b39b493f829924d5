"""Weights shared as differences to their last mean: same means, less harm by lossy codecs, exact resume."""

from collections.abc import Callable

import pytest
import torch

from cutlayer.config.schema import Config
from cutlayer.errors import CheckpointError, ConfigError, MessageError
from cutlayer.protocol.state_form import StateForm
from cutlayer.split.state import client_state, restore_client
from cutlayer.training.local_run import LocalRun
from cutlayer.wire.messages.types import Share, SyncDown

Start = Callable[..., LocalRun]
EACH_TWO = ["train.sync=2", "train.clients=3"]


def weights(run: LocalRun, steps: int = 4) -> torch.Tensor:
    for _ in range(steps):
        run.step()
    found = [client.half.weight_vector() for client in run.clients.clients]
    assert all(torch.equal(found[0], other) for other in found[1:]), "all agree after a mean"
    return found[0]


def test_uncompressed_differences_give_the_same_means(start: Start) -> None:
    plain = weights(start(*EACH_TWO))
    shared = weights(start(*EACH_TWO, "train.share_differences=true"))
    torch.testing.assert_close(shared, plain, rtol=1e-4, atol=1e-5)


def test_a_lossy_codec_harms_differences_less(start: Start) -> None:
    lossy = [*EACH_TWO, "codec.sync=qu:bits=4"]
    exact = weights(start(*EACH_TWO))
    harm = [
        float((weights(start(*lossy, f"train.share_differences={on}")) - exact).norm())
        for on in ("true", "false")
    ]
    assert harm[0] < harm[1] / 4


def test_an_interrupted_run_goes_on_exactly(resumes_exactly: Callable[[list[str], int], None]) -> None:
    # In mid-interval, where clients differ and the last mean is known from the checkpoint alone.
    resumes_exactly([*EACH_TWO, "train.share_differences=true", "codec.sync=qu:bits=4"], 3)


def test_clients_that_sat_a_step_out_are_asked_for_differences_too(start: Start) -> None:
    settings = [*EACH_TWO, "data.partition=dirichlet:alpha=0.5"]
    plain = start(*settings)
    assert len({len(part) for part in plain.data.parts}) > 1
    total = plain.server.plan.total
    shared = start(*settings, "train.share_differences=true")
    for run in (plain, shared):
        for _ in range(total):
            run.step()
    for one, other in zip(plain.clients.halves, shared.clients.halves, strict=True):
        torch.testing.assert_close(other.weight_vector(), one.weight_vector(), rtol=1e-3, atol=1e-4)


def test_the_last_mean_is_part_of_a_clients_state(start: Start) -> None:
    half = start(*EACH_TWO, "train.share_differences=true").clients.halves[0]
    state = client_state(half)
    StateForm.of(half).check(state, complete=True, max_value=None)
    del state["last_mean"]
    with pytest.raises(MessageError, match="the state has no tensor 'last_mean'"):
        StateForm.of(half).check(state, complete=True, max_value=None)
    with pytest.raises(CheckpointError, match="does not have the last mean"):
        restore_client(half, state, 1)


def test_differences_of_another_size_are_the_servers_fault(start: Start) -> None:
    client = start(*EACH_TWO, "train.share_differences=true").clients.clients[0]
    frame = client.codecs.plain(torch.zeros(1))
    message = SyncDown(0, frame, Share.DIFFERENCES, len(frame), 0.1, False)
    with pytest.raises(MessageError, match="1 differences for"):
        client.handle_from_network(message)


@pytest.mark.parametrize("other", ["train.sync=step", "train.mode=relay", "train.aggregation=allgather"])
def test_it_needs_weights_that_the_server_averages(configure: Callable[..., Config], other: str) -> None:
    with pytest.raises(ConfigError, match=r"train\.share_differences: needs"):
        configure("train.sync=2", "train.share_differences=true", other)
    assert "share_differences" not in configure().identity()["train"]
