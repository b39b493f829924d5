"""What a server sees of a client: answers are timed from the question, and who is awaited owes something."""

import pytest

from cutlayer.wire import activity
from cutlayer.wire.activity import Activity


class Clock:
    """Time that passes when a test says so."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now + 1e6


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(activity, "time", found)
    return found


def test_answers_are_timed_from_the_first_question(clock: Clock) -> None:
    client = Activity()
    assert client.to_json() == {
        "seen": None,
        "answer_seconds": None,
        "pending_seconds": None,
        "up": 0,
        "down": 0,
    }
    client.sent(10, asks=False)
    clock.now += 5
    assert client.to_json()["pending_seconds"] is None
    client.sent(10, asks=True)
    clock.now += 1
    client.sent(10, asks=True)
    clock.now += 1
    assert client.to_json()["pending_seconds"] == 2
    client.received(7)
    found = client.to_json()
    assert (found["answer_seconds"], found["pending_seconds"]) == (2, None)
    assert (found["up"], found["down"], found["seen"]) == (7, 30, clock.time())


def test_the_second_half_of_an_answer_is_owed_but_not_timed(clock: Clock) -> None:
    client = Activity()
    client.sent(1, asks=True)
    clock.now += 1
    client.received(1)
    clock.now += 3
    client.awaited()
    clock.now += 4
    client.awaited()
    assert client.to_json()["pending_seconds"] == 4
    client.received(1)
    assert client.to_json()["answer_seconds"] == 1
    assert client.to_json()["pending_seconds"] is None


def test_a_new_connection_owes_nothing(clock: Clock) -> None:
    client = Activity()
    client.sent(1, asks=True)
    client.awaited()
    clock.now += 9
    client.greeted()
    assert client.to_json()["pending_seconds"] is None
    assert client.to_json()["seen"] == clock.time()
