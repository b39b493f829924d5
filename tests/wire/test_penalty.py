"""Who breaks the protocol again and again has to stay away longer each time."""

from types import SimpleNamespace

import pytest

from cutlayer.errors import NotNowError, RefusedError
from cutlayer.wire.grpc.membership import Membership
from cutlayer.wire.grpc.peer import Stream
from cutlayer.wire.penalty import Penalties
from cutlayer.wire.policy import Policy


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_wait_doubles_up_to_a_bound() -> None:
    clock = Clock()
    penalties = Penalties(clock, first=1.0, longest=60.0)
    assert penalties.left(3) == 0
    assert [penalties.add(3) for _ in range(10)] == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert penalties.offences(3) == 10
    assert penalties.left(3) == 60
    assert penalties.left(2) == 0  # the others have nothing to do with it
    clock.now += 59
    assert penalties.left(3) == 1
    clock.now += 1
    assert penalties.left(3) == 0


def test_a_million_offences_are_no_overflow() -> None:
    penalties = Penalties(Clock(), longest=60.0)
    for _ in range(5000):
        penalties.add(0)
    assert penalties.left(0) == 60


def test_good_conduct_is_remembered_in_the_end() -> None:
    clock = Clock()
    penalties = Penalties(clock, forgiven_after=3600.0)
    for _ in range(4):
        penalties.add(0)
    clock.now += 3601
    assert penalties.add(0) == 0
    assert penalties.offences(0) == 1


def hello(number: int) -> SimpleNamespace:
    return SimpleNamespace(incarnation=number.to_bytes(16, "big"), attempt=1, era="", received=0)


@pytest.mark.parametrize("straggler", ["wait", "drop"])
def test_an_offender_is_told_to_come_later_and_the_operator_why(straggler: str) -> None:
    clock, notes = Clock(), []
    members = Membership(
        2, Policy(straggler), names=("ann", "bob"), note=notes.append, penalties=Penalties(clock, first=4.0)
    )

    def come(number: int) -> None:
        members.greet(1, hello(number), Stream(lambda function: None))

    come(1)
    members.expel(1, "it lied")
    come(2)  # once is no habit
    members.expel(1, "it lied again")
    assert "offence 2" in notes[-1]
    assert "4 s" in notes[-1]
    assert ("the run cannot go on without it" in notes[-1]) == (straggler == "wait")
    with pytest.raises(NotNowError, match=r"client 1 \(bob\) broke the protocol 2 times.* in 4 s"):
        come(3)
    with pytest.raises(RefusedError, match="used before"):
        come(2)
    members.greet(0, hello(9), Stream(lambda function: None))
    clock.now += 4
    come(3)
    members.expel(1, "and again")
    assert "offence 3" in notes[-1]
    with pytest.raises(NotNowError, match="in 8 s"):
        come(4)
