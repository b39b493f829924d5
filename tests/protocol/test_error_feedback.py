"""Error feedback: by hand, in training, in checkpoints."""

from collections.abc import Callable

import pytest
import torch

import cutlayer
from cutlayer.aggregation.at_server import RunningMean
from cutlayer.errors import CheckpointError
from cutlayer.protocol.plan import Place
from cutlayer.protocol.run_codecs import ErrorFeedback, RunCodecs, codec_of
from cutlayer.protocol.state_bytes import from_bytes, to_bytes
from cutlayer.training.local_run import LocalRun
from cutlayer.wire.messages.types import Ask, Share, State, SyncUp

Start = Callable[..., LocalRun]


def test_two_steps_by_hand() -> None:
    memory, codec = ErrorFeedback(4), cutlayer.codec("sp:ratio=0.75")  # one of four is kept

    def send(*values: float) -> list[float]:
        frame = memory.encode(torch.tensor(values), codec.encode, cutlayer.decode)
        return cutlayer.decode(frame).tolist()

    assert send(3, -2, 1, 0) == [3, 0, 0, 0]
    assert memory.residual.tolist() == [0, -2, 1, 0]
    # What is owed counts: [1, -2, 1, 0] + [0, -2, 1, 0] has its largest value at the second place.
    assert send(1, -2, 1, 0) == [0, -4, 0, 0]
    assert memory.residual.tolist() == [1, 0, 2, 0]


def test_nothing_is_lost_in_the_long_run() -> None:
    memory, codec = ErrorFeedback(50), cutlayer.codec("qu:bits=2")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, generator=generator)
    arrived = sum(cutlayer.decode(memory.encode(x, codec.encode, cutlayer.decode)) for _ in range(64))
    # 64 x = what arrived + what is still owed: the mean error goes with 1/64, without feedback it stays.
    torch.testing.assert_close(arrived + memory.residual, 64 * x, rtol=1e-4, atol=1e-3)
    once = (cutlayer.decode(codec.encode(x)) - x).norm()
    assert (arrived / 64 - x).norm() < once / 10


def test_a_codec_that_enlarges_is_not_remembered() -> None:
    memory, codec = ErrorFeedback(100), cutlayer.codec("rk:ratio=0.9")
    for step in range(20):
        memory.encode(torch.ones(100), lambda x, s=step: codec.encode(x, seed=s), cutlayer.decode)
        assert memory.residual.norm() == 0


def test_a_memory_of_another_model_is_refused() -> None:
    with pytest.raises(CheckpointError, match="3 elements in the checkpoint"):
        ErrorFeedback(4).restore(torch.zeros(3))


def test_one_step_of_a_run_is_what_the_formulas_say(start: Start) -> None:
    """The aggregator owes what the frame of a mean lacks, and pays in the next step."""
    session = start("codec.sync=sp:ratio=0.95", "train.clients=2")
    seen: list[SyncUp] = []
    real = session.server.transport.receive

    def receive(client: int) -> object:
        message = real(client)
        if isinstance(message, SyncUp):
            seen.append(message)
        return message

    session.server.transport.receive = receive  # type: ignore[method-assign,assignment]
    for _ in range(2):
        session.step()
    sp, places = cutlayer.codec("sp:ratio=0.95"), [(0, 0), (0, 1), (1, 0), (1, 1)]
    sent = {place: cutlayer.decode(m.frames[0]) for place, m in zip(places, seen, strict=True)}
    means, owed = [], torch.zeros_like(sent[0, 0])
    for step in range(2):
        whole = owed + (sent[step, 0] + sent[step, 1]) / 2
        means.append(cutlayer.decode(sp.encode(whole)))
        owed = whole - means[-1]
    torch.testing.assert_close(session.server.aggregation.state()["aggregator.memory"], owed)


@pytest.mark.parametrize("settings", [[], ["train.mode=sequential"], ["train.sync=2"]], ids=str)
def test_a_state_message_carries_the_memory(start: Start, settings: list[str]) -> None:
    session = start(*settings, "codec.sync=sp:ratio=0.9")
    for _ in range(2):
        session.step()
    one, other = session.clients.clients[1], start(*settings, "codec.sync=sp:ratio=0.9").clients.clients[1]
    assert one.feedback is not None
    assert other.feedback is not None
    assert one.feedback.residual.norm() > 0
    (state,) = one.handle(Ask(2, Share.STATE))
    assert isinstance(state, State)
    list(other.handle(state))
    assert torch.equal(other.feedback.residual, one.feedback.residual)
    (own,) = one.handle(Ask(2, Share.OWN))
    assert isinstance(own, State)
    assert list(from_bytes(own.body)) == ["own.memory"]
    # Who joins later owes nothing.
    common = {k: t for k, t in from_bytes(state.body).items() if not k.startswith("own.")}
    list(other.handle(State(2, to_bytes(common))))
    assert other.feedback.residual.norm() == 0


@pytest.mark.parametrize("feedback", [True, False])
def test_a_biased_codec_converges_with_feedback_only(feedback: bool) -> None:
    """Two clients whose large gradients cancel: top-k sends these alone, and the small ones never move.

    Client c has the loss (x0 -+ 10)^2 / 2 + (x1 - 1)^2 / 2. The mean has its minimum at (0, 1).
    """
    none = codec_of("none")
    codecs = RunCodecs(none, none, codec_of("sp:ratio=0.5"), 0, error_feedback=feedback)
    memories = [ErrorFeedback(2) if feedback else None for _ in range(2)]
    owed = ErrorFeedback(2) if feedback else None
    x = torch.zeros(2)
    for number in range(400):
        mean = RunningMean(codecs, [0.5, 0.5])
        for client, pull in enumerate((10.0, -10.0)):
            gradient = x - torch.tensor([pull, 1.0])
            frame = codecs.encode_shared(memories[client], gradient, "sync-up", client, 0, number)
            mean.add(client, SyncUp(number, frame, Share.GRADIENTS, len(frame)))
        message = mean.message(Place(number, 0, number, 0.01), owed)
        x = x - 0.05 * cutlayer.decode(message.frames[0])
    distance = float((x - torch.tensor([0.0, 1.0])).norm())
    assert distance < 0.5 if feedback else distance == 1.0


def test_training_gets_closer_to_the_uncompressed_run_with_feedback(start: Start) -> None:
    """Of the clients' gradients, one value in two hundred travels. Measured: 1.69 against 1.90."""

    def train(feedback: str) -> float:
        session = start(
            "codec.sync=sp:ratio=0.995",
            f"codec.feedback={feedback}",
            "model.cut=deep",
            "train.epochs=12",
            "train.schedule=constant",
            "train.momentum=0",
            "train.weight_decay=0",
        )
        losses = [session.step().loss for _ in range(session.server.plan.total)]
        return sum(losses[-9:]) / 9

    assert train("true") < train("false") - 0.1


def test_without_a_lossy_codec_there_is_no_memory(start: Start) -> None:
    assert start().clients.clients[0].feedback is None
    assert start("codec.sync=sp", "codec.feedback=false").clients.clients[0].feedback is None
