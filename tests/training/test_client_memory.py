"""Smashed data that travel as what has changed since a sample's last visit: AQ-SGD and SplitCom."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from cutlayer.config.schema import Config, from_mapping
from cutlayer.data.spec import DataSpec
from cutlayer.errors import CheckpointError, ConfigError, FrameError, MessageError, RefusedError
from cutlayer.protocol.admission import Fits
from cutlayer.protocol.build import prepare_data
from cutlayer.protocol.handshake import describe, settings_for_clients
from cutlayer.training.local_run import LocalRun, local_run
from cutlayer.training.serving.checks import check_serving
from cutlayer.wire.grpc.server import Listening
from cutlayer.wire.messages.types import Smashed
from cutlayer.wire.policy import Policy

AQSGD = ["codec.up=none", "codec.memory=aqsgd:change=qu:bits=4,rounding=stochastic"]
SPLITCOM = ["codec.up=qu:bits=6", "codec.memory=splitcom:threshold=0.99"]
U = ["train.mode=u-shaped", 'model.cut=["layer1", "fc"]']
Start = Callable[..., LocalRun]


@pytest.mark.parametrize(
    "settings",
    [
        AQSGD,
        [*SPLITCOM, "train.sync=3"],
        [*AQSGD, "train.mode=relay", "train.server_batching=per_client"],
        [*SPLITCOM, *U, "codec.commitment=0.1"],
    ],
    ids=["aqsgd", "splitcom sync", "aqsgd relay", "splitcom u-shaped"],
)
def test_a_run_goes_on_exactly_from_its_state(start: Start, settings: list[str]) -> None:
    settings = [*settings, "data.limit=60", "train.epochs=3", "data.partition=dirichlet:alpha=1"]
    whole, first = start(*settings), start(*settings)
    total = whole.server.plan.total
    losses = [whole.step().losses for _ in range(total)]
    stop = whole.server.plan.steps_per_epoch + 2
    for _ in range(stop):
        first.step()
    first.evaluate()  # is not remembered
    tensors, state = first.state()
    second = start(*settings)
    second.step()
    second.restore({name: t.clone() for name, t in tensors.items()}, state)
    assert [second.step().losses for _ in range(stop, total)] == losses[stop:]
    a, b = whole.state()[0], second.state()[0]
    assert a.keys() == b.keys()
    assert all(torch.equal(tensor, b[name]) for name, tensor in a.items())
    again = start(*settings)
    without = {name: t for name, t in tensors.items() if not name.endswith("samples.last")}
    with pytest.raises(CheckpointError, match="memory of a client's samples cannot be restored"):
        again.restore(without, state)


@pytest.mark.parametrize("settings", [AQSGD, SPLITCOM], ids=["aqsgd", "splitcom"])
def test_later_visits_send_less_and_both_ends_remember_the_same(start: Start, settings: list[str]) -> None:
    run = start(*settings, "data.limit=60", "train.lr=0.001", "train.epochs=3")
    epoch = run.server.plan.steps_per_epoch
    sent = [run.step().bytes["up/smashed"] for _ in range(3 * epoch)]
    assert sum(sent[2 * epoch :]) < 0.7 * sum(sent[:epoch])
    held = run.state()[0]
    for number, client in enumerate(run.clients.clients):
        assert client._memory is not None
        for name, tensor in client._memory.state().items():
            assert torch.equal(tensor, held[f"client.{number}.own.{name}"])
        assert bool(held[f"client.{number}.own.samples.known"].all())


def test_a_first_visit_is_what_was_sent(start: Start) -> None:
    run = start("codec.up=none", "codec.memory=aqsgd:change=qu:bits=8")
    assert run.step().error < 1e-6, "rounded to float16, and nothing else"
    for _ in range(run.server.plan.steps_per_epoch):
        found = run.step()
    assert 1e-9 < found.error < 0.01


@pytest.mark.parametrize(
    ("settings", "lie", "match"),
    [
        (AQSGD, lambda body: body[1:], "malformed|frame|claims|bytes"),
        (SPLITCOM, lambda body: bytes(len(body)), "left out that was never sent"),
    ],
    ids=["aqsgd", "splitcom"],
)
def test_a_client_that_lies_about_its_samples_is_blamed(
    start: Start, settings: list[str], lie: Callable[[bytes], bytes], match: str
) -> None:
    run = start(*settings)
    client, before = run.clients.clients[1], run.state()[0]
    begin = client._begin
    client._handlers = dict(client._handlers) | {
        type_: (
            (
                lambda message: [
                    replace(m, body=lie(m.body)) if isinstance(m, Smashed) else m for m in begin(message)
                ]
            )
            if handler == begin
            else handler
        )
        for type_, handler in client._handlers.items()
    }
    with pytest.raises((MessageError, FrameError), match=match):
        run.step()
    after = run.state()[0]["client.1.own.samples.known"]
    assert torch.equal(after, before["client.1.own.samples.known"]), "nothing of it is remembered"


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        (["train.mode=async"], "codec.memory: in mode async a batch may be discarded"),
        (["train.clients_per_step=1"], "codec.memory: with train.clients_per_step clients keep nothing"),
        (["codec.up=ems", "codec.rate=until:50%=2"], "use codec.rate = fixed"),
        (["train.track_bias=2"], "looks at a step in advance"),
        (["codec.memory=aqs"], "the memory 'aqs' is not understood; use none, aqsgd:change"),
        (["codec.memory=splitcom:threshold=2"], "a threshold is a cosine similarity"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_remember_says_why(
    configure: Callable[..., Config], settings: list[str], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        configure(*AQSGD, *settings)


def test_memory_is_bounded_on_the_server_and_claims_are_checked(configure: Callable[..., Config]) -> None:
    config = configure(*AQSGD, "codec.memory_limit=0.00001")
    with pytest.raises(ConfigError, match=r"Raise codec.memory_limit, cut where activations are smaller"):
        local_run(config)
    config = configure(*AQSGD, "codec.memory_limit=0.05")
    data = prepare_data(config)
    local_run(config, data)
    fits, ready = Fits(config), describe(data, 1, settings_for_clients(config))
    assert fits(1, ready, {}) == {}
    ready.samples = 10_000_000
    with pytest.raises(RefusedError, match=r"client 1: codec.memory: to remember 10,000,000 samples takes"):
        fits(1, ready, {})
    assert DataSpec.of(data).samples[1] < 1000


def test_a_run_in_which_batches_may_be_left_out_is_not_served(configure: Callable[..., Config]) -> None:
    config = configure(*AQSGD)
    check_serving(config, Listening("127.0.0.1:0"))
    with pytest.raises(ConfigError, match=r"codec.memory: .* use --straggler wait"):
        check_serving(config, Listening("127.0.0.1:0", policy=Policy(straggler="drop")))


def test_the_commitment_pulls_smashed_data_towards_what_they_decode_to(start: Start) -> None:
    how = ["codec.up=qu:bits=2", "train.clients=1", "codec.measure=false"]
    plain, pulled = start(*how), start(*how, "codec.commitment=2.0")
    exact = start("codec.up=none", "train.clients=1", "codec.commitment=2.0")
    seen = []
    for run in (plain, pulled):
        half = run.clients.halves[0]
        real = half.backward
        half.backward = lambda g, real=real: (seen.append(g.clone()), real(g))[1]  # type: ignore[method-assign, misc]
        run.step()
    # The first step of both has the same smashed data and the same gradient from the server.
    added = seen[1] - seen[0]
    fresh = start(*how).clients.clients[0]
    inputs, _ = fresh.batch(0, 0)
    smashed = fresh.half.forward(inputs)
    assert isinstance(smashed, torch.Tensor)
    decoded = fresh.codecs.decode(fresh.codecs.encode(fresh.codecs.up, smashed, "up", 0, 0, 0))
    lost = smashed.detach() - decoded
    torch.testing.assert_close(added, 2.0 * lost * (seen[0].norm() / smashed.norm()), rtol=1e-3, atol=1e-6)
    assert exact.step().loss == start("codec.up=none", "train.clients=1").step().loss


def test_old_runs_are_the_same_runs(configure: Callable[..., Config]) -> None:
    config = configure()
    assert not {"memory", "memory_limit", "commitment"} & config.identity()["codec"].keys()
    kept = from_mapping({"codec": {"memory": "aqsgd:change=qu:bits=3", "memory_limit": 1.0}})
    assert kept.identity()["codec"]["memory"] == "aqsgd:change=qu:bits=3"
