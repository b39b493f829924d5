import random

import pytest

from cutlayer.errors import MessageError
from cutlayer.wire.grpc.retransmit import Reliable


def test_messages_survive_connections_that_break_at_random() -> None:
    """A line that loses everything behind some point, then a new one: all arrives, once, in order."""
    chance = random.Random(3)
    sides = [Reliable(), Reliable()]
    sent: list[list[bytes]] = [[], []]
    got: list[list[bytes]] = [[], []]
    cursors = [0, 0]
    for number in range(2000):
        me = chance.randrange(2)
        you = 1 - me
        if chance.random() < 0.1:
            # A new connection: each side tells what it has.
            for side in (0, 1):
                sides[side].confirm(sides[1 - side].received)
                cursors[side] = sides[1 - side].received
        if chance.random() < 0.5:
            sent[me].append(b"%d" % number)
            sides[me].send(sent[me][-1])
        while (found := sides[me].after(cursors[me])) is not None:
            cursors[me] = found[0]
            if chance.random() < 0.2:
                cursors[me] = 1 << 60  # the line is dead until the next one
                break
            message = sides[you].accept(found[0], sides[me].received, found[1][0])
            if message is not None:
                got[you].append(message)
    for side in (0, 1):
        sides[side].confirm(sides[1 - side].received)
        number = sides[1 - side].received
        while (found := sides[side].after(number)) is not None:
            number = found[0]
            message = sides[1 - side].accept(found[0], sides[side].received, found[1][0])
            assert message is not None
            got[1 - side].append(message)
    assert got == [sent[1], sent[0]]
    assert len(sent[0]) > 300


def test_repetitions_are_dropped_and_gaps_are_not_filled() -> None:
    side = Reliable()
    assert side.accept(1, 0, b"a") == b"a"
    assert side.accept(1, 0, b"a") is None
    with pytest.raises(MessageError, match="message 3 arrived where 2"):
        side.accept(3, 0, b"c")
    assert side.received == 1


def test_what_is_confirmed_is_forgotten_and_lies_are_noticed() -> None:
    side = Reliable()
    for message in (b"a", b"b", b"c"):
        side.send(message)
    side.confirm(2)
    assert side.kept == 1
    assert side.after(0) == (3, (b"c",))
    with pytest.raises(MessageError, match="only 3 were sent"):
        side.confirm(4)
