import random
from collections.abc import Sequence

import pytest

from cutlayer.errors import MessageError
from cutlayer.wire.grpc.retransmit import PIECE, Piece, Reliable, sealed
from cutlayer.wire.messages.envelope import MOST_MESSAGES, UP, Packet, opener


def packet(pieces: Sequence[Piece], received: int = 0) -> Packet:
    """What arrives when these pieces go out together."""
    found = opener(UP, "Up")(sealed(UP, received, pieces)[0])
    assert isinstance(found, Packet)
    return found


def accept(side: Reliable, found: Packet, most: int = 1 << 30) -> list[bytes]:
    return [bytes(message) for message in side.accept_all(found, lambda: most)]


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
        while found := sides[me].batch(cursors[me], several=chance.random() < 0.5):
            cursors[me] = found[-1].number
            if chance.random() < 0.2:
                cursors[me] = 1 << 60  # the line is dead until the next one
                break
            got[you] += accept(sides[you], packet(found, sides[me].received))
    for side in (0, 1):
        sides[side].confirm(sides[1 - side].received)
        number = sides[1 - side].received
        while found := sides[side].batch(number, several=True):
            number = found[-1].number
            arrived = accept(sides[1 - side], packet(found, sides[side].received))
            assert len(arrived) == len(found)
            got[1 - side] += arrived
    assert got == [sent[1], sent[0]]
    assert len(sent[0]) > 300


def test_repetitions_are_dropped_and_gaps_are_not_filled() -> None:
    side = Reliable()
    assert side.accept(1, 0, b"a") == b"a"
    assert side.accept(1, 0, b"a") is None
    with pytest.raises(MessageError, match="message 3 arrived where 2"):
        side.accept(3, 0, b"c")
    assert side.received == 1


@pytest.mark.parametrize("size", [PIECE - 3, PIECE - 2, 2 * PIECE, 2 * PIECE + 5])
def test_a_large_message_goes_in_pieces_and_comes_as_one(size: int) -> None:
    sender, receiver = Reliable(), Reliable()
    body = random.Random(size).randbytes(size)
    sender.send(b"head", body[:7], body[7:])
    sender.send(b"the next")
    assert sender.kept_bytes == 4 + size + 8
    got, number, written = [], 0, 0
    while found := next(iter(sender.batch(number, several=True)), None):
        number = found.number
        piece = memoryview(b"".join(found.parts))
        assert len(piece) <= PIECE
        written += 1
        for _ in range(2):  # a repetition changes nothing
            message = receiver.accept(number, 0, piece, found.more, most=4 + size)
            if message is not None:
                got.append(bytes(message))
    assert got == [b"head" + body, b"the next"]
    assert written == -(-(4 + size) // PIECE) + 1
    sender.confirm(number)
    assert sender.kept_bytes == 0


def test_a_message_is_refused_at_the_first_piece_too_many() -> None:
    side, piece = Reliable(), memoryview(bytes(PIECE))
    assert side.accept(1, 0, piece, True, most=2 * PIECE + 10) is None
    assert side.accept(2, 0, piece, True, most=2 * PIECE + 10) is None
    with pytest.raises(MessageError, match="bytes that nobody asked for"):
        side.accept(3, 0, piece[:11], False, most=2 * PIECE + 10)
    with pytest.raises(MessageError, match=f"where {PIECE} are expected"):
        Reliable().accept(1, 0, piece[:3], True)


def test_what_is_confirmed_is_forgotten_and_lies_are_noticed() -> None:
    side = Reliable()
    for message in (b"a", b"b", b"c"):
        side.send(message)
    side.confirm(2)
    assert side.kept == 1
    assert side.batch(0, several=True) == [(3, (b"c",), False)]
    with pytest.raises(MessageError, match="only 3 were sent"):
        side.confirm(4)


def test_what_waits_goes_out_together_and_arrives_once() -> None:
    sender, receiver = Reliable(), Reliable()
    for text in (b"a", b"b", b"c"):
        sender.send(text[:0], text)
    assert [piece.number for piece in sender.batch(0, several=False)] == [1]
    found = packet(sender.batch(0, several=True))
    assert accept(receiver, found) == [b"a", b"b", b"c"]
    assert accept(receiver, found) == []
    # After a broken connection a part of it comes again, with what is new.
    sender.send(b"d")
    assert accept(receiver, packet(sender.batch(1, several=True))) == [b"d"]
    assert receiver.received == 4
    sender.confirm(receiver.received)
    assert sender.batch(4, several=True) == []


def test_as_much_goes_out_together_as_one_message_may_have() -> None:
    sender = Reliable()
    for _ in range(MOST_MESSAGES + 1):
        sender.send(b"x")
    sender.send(bytes(PIECE - 5))
    sender.send(bytes(PIECE + 1))
    sender.send(b"y")
    found, number = [], 0
    while pieces := sender.batch(number, several=True):
        found.append([piece.number for piece in pieces])
        number = pieces[-1].number
    assert found == [list(range(1, 17)), [17, 18], [19], [20, 21]]


def test_a_piece_of_a_message_comes_alone() -> None:
    with pytest.raises(MessageError, match="together with others"):
        accept(Reliable(), Packet(1, 0, memoryview(bytes(PIECE)), True, (memoryview(b"b"),)))


def test_each_of_several_messages_is_bounded() -> None:
    sender, receiver = Reliable(), Reliable()
    sender.send(b"abc")
    sender.send(b"defgh")
    with pytest.raises(MessageError, match="more than 4 bytes"):
        accept(receiver, packet(sender.batch(0, several=True)), most=4)
    assert receiver.received == 1
