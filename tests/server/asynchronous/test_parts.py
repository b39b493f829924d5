"""The parts of mode async alone: kept messages, the order of arrivals, batches in a checkpoint."""

from types import SimpleNamespace

import pytest

from cutlayer.errors import CheckpointError
from cutlayer.protocol.plan import Step
from cutlayer.server.asynchronous.arrivals import NetworkArrivals, VirtualArrivals
from cutlayer.server.asynchronous.in_flight import InFlight, from_checkpoint, to_checkpoint
from cutlayer.server.asynchronous.kept_messages import KeptMessages
from cutlayer.server.simulated_work import BACKWARD, FORWARD, SimulatedWork
from cutlayer.wire.link.model import Link
from cutlayer.wire.loopback import Loopback
from cutlayer.wire.messages.base import Message
from cutlayer.wire.messages.types import BeginStep, Gradient, Labels, Share, Smashed, SyncDown


def batch(client: int, number: int = 0, samples: int = 8) -> Step:
    return Step(number, 1, 2, 0.1, (client,), (samples,), Share.UPDATE, False)


def answers(message: Message) -> list[Message]:
    if isinstance(message, BeginStep):
        return [Smashed(message.number, b"x" * 992), Labels(message.number, b"12345678", 8)]
    return []


def asked(kept: KeptMessages, *clients: int) -> None:
    for client in clients:
        kept.send(client, InFlight(batch(client), WEIGHTS).begin)


WEIGHTS = SyncDown(0, b"weights and buffers", Share.WEIGHTS, 7, 0.1, False)


def test_what_was_sent_and_what_was_put_aside_are_kept() -> None:
    kept = KeptMessages(Loopback([answers, answers]))
    asked(kept, 1)
    assert [type(message) for message in kept.sent(1)] == [BeginStep]
    assert kept.hold(1, 2) == 1000
    assert kept.hold(1, 2) == 1000  # not taken twice
    assert kept.holds(1)
    assert kept.present([1], 2) == (1,)
    assert type(kept.receive(1)) is Smashed
    assert type(kept.receive(1)) is Labels
    assert not kept.holds(1)
    kept.forget(1)
    assert kept.sent(1) == []
    assert kept.sent(0) == []


def test_the_virtual_clock_passes_over_compute_and_transfer() -> None:
    kept = KeptMessages(Loopback([answers] * 3))
    work = SimulatedWork(madds=1000, device=8000.0, speeds=(1.0, 0.5))
    arrivals = VirtualArrivals(work, [Link(up=8000.0, down=4000.0)])
    asked(kept, 0, 1, 2)
    for client in range(3):
        arrivals.asked(kept, batch(client), 500, FORWARD)
    # 500 bytes down and 1000 up take a second each, and eight samples one or two: clients 0 and 2 are alike.
    assert arrivals.next([0, 1, 2]) == (0, 2)
    assert arrivals.seconds == pytest.approx(3.0)
    arrivals.taken(0)
    kept.forget(0)
    asked(kept, 0)
    arrivals.asked(kept, batch(0), 0, BACKWARD)
    assert arrivals.next([0, 1, 2]) == (2,)
    arrivals.taken(2)
    assert arrivals.next([0, 1]) == (1,)
    assert arrivals.seconds == pytest.approx(4.0)
    other = VirtualArrivals(work)
    other.restore(arrivals.state())
    other.taken(1)
    assert other.next([0]) == (0,)
    assert other.seconds == pytest.approx(6.0)


def test_jitter_is_seeded_and_bounded() -> None:
    work = SimulatedWork(1000, 1000.0, jitter=0.25, seed=3)
    drawn = [work.seconds(client, number, 1, FORWARD) for client in range(4) for number in range(50)]
    assert drawn == [work.seconds(client, number, 1, FORWARD) for client in range(4) for number in range(50)]
    assert len(set(drawn)) == 200
    assert 0.75 <= min(drawn) < 0.8 < 1.2 < max(drawn) <= 1.25
    assert sum(drawn) / 200 == pytest.approx(1.0, abs=0.03)
    assert work.seconds(0, 0, 1, FORWARD) != SimulatedWork(1000, 1000.0, jitter=0.25).seconds(
        0, 0, 1, FORWARD
    )


def test_on_a_network_whoever_was_put_aside_comes_first() -> None:
    waited = []

    def first_present(clients: list[int], messages: int) -> tuple[int, ...]:
        waited.append((tuple(clients), messages))
        return (1,)

    kept = KeptMessages(Loopback([answers, answers]))
    arrivals = NetworkArrivals(SimpleNamespace(first_present=first_present))  # type: ignore[arg-type]
    asked(kept, 0, 1)
    arrivals.asked(kept, batch(0), 0, FORWARD)
    assert arrivals.next([0, 1]) == (1,)
    kept.hold(0, 2)
    assert arrivals.next([0, 1]) == (0,)
    assert waited == [((0, 1), 2)]
    assert arrivals.seconds is None


def test_batches_in_flight_go_through_a_checkpoint() -> None:
    flying = {
        3: InFlight(batch(3), WEIGHTS),
        7: InFlight(batch(7, samples=5), WEIGHTS, 0.25, Gradient(0, b"gradient"), True),
    }
    tensors, about = to_checkpoint(flying)
    assert sorted(tensors) == ["async.gradient.7", "async.weights.0"]
    found = from_checkpoint(tensors, about)
    assert found[3] == flying[3]
    # The client computes anew, and its last answer is not awaited before.
    assert found[7] == InFlight(batch(7, samples=5), WEIGHTS, 0.25, Gradient(0, b"gradient"), False)
    assert found[3].weights is found[7].weights


@pytest.mark.parametrize("damage", ["lost", "dtype", "field"])
def test_damaged_batches_in_flight_are_named(damage: str) -> None:
    tensors, about = to_checkpoint({0: InFlight(batch(0), WEIGHTS)})
    if damage == "lost":
        tensors.clear()
    elif damage == "dtype":
        tensors = {name: tensor.float() for name, tensor in tensors.items()}
    else:
        del about["0"]["epoch"]
    with pytest.raises(CheckpointError, match="batches in flight"):
        from_checkpoint(tensors, about)


def test_a_report_needs_no_measured_time_where_work_is_simulated(
    start,
) -> None:
    runs = [start("link.speeds=[1, 0.1]", "train.clients=2", "link.device=1e6") for _ in range(2)]
    times = [[run.step().simulated for _ in range(3)] for run in runs]
    assert times[0] == times[1]
    even = start("link.speeds=[1, 1]", "train.clients=2", "link.device=1e6")
    # The slowest decides in parallel: ten times the time.
    assert times[0][-1] == pytest.approx(10 * [even.step().simulated for _ in range(3)][-1])
