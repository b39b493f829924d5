import pytest

from cutlayer.errors import MessageError
from cutlayer.wire.loopback import Loopback
from cutlayer.wire.messages.parse import head_size, parse
from cutlayer.wire.messages.types import (
    TYPES,
    Ask,
    BeginStep,
    Combine,
    Evaluate,
    Gradient,
    Labels,
    Message,
    Placeholder,
    Report,
    Scores,
    Share,
    Smashed,
    State,
    Sums,
    SyncDown,
    SyncUp,
)
from cutlayer.wire.meter import Kind, Meter

EXAMPLES: list[Message] = [
    BeginStep(7, 1, 2, 0.1, Share.WEIGHTS),
    Smashed(7, b"frame"),
    Labels(7, b"\x21\x43", 4),
    Gradient(2**40, b"frame"),
    SyncUp(7, b"weightsbuffers", Share.WEIGHTS, 7),
    SyncDown(7, b"mean", Share.GRADIENTS, 4, 0.05, False),
    Report(7, 32, 0.5, 0.015625, 1.0, 2.0, 3.0, 4.0, 5.0),
    Ask(7, Share.BUFFERS),
    Evaluate(0, 100, 200),
    Scores(0, 100, 12.5, 90, 99),
    State(7, b"safetensors"),
    Placeholder(7),
    Combine(7, Combine.pack_weights({0: 0.25, 2: 0.75}), 1, 2, 0.1, False, 0),
    Sums(0, Sums.pack_values((12.5, 7.0)), 100),
]


def test_every_type_has_an_example() -> None:
    assert [type(message) for message in EXAMPLES] == list(TYPES)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: type(m).__name__)
def test_messages_survive_their_bytes(message: Message) -> None:
    assert parse(message.head(), message.content) == message
    assert head_size(message.head()[0]) == len(message.head())
    assert message.size == (len(message.content) or len(message.head()))


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: type(m).__name__)
def test_damaged_heads_are_refused(message: Message) -> None:
    head = message.head()
    for bad in (b"", head[:-1], head + b"x", b"\xff" + head[1:]):
        with pytest.raises(MessageError):
            parse(bad, message.content)
    if not message.content:
        with pytest.raises(MessageError, match="no body"):
            parse(head, b"more")
    with pytest.raises(MessageError):
        head_size(len(TYPES))


def test_a_frame_cannot_end_behind_its_message() -> None:
    with pytest.raises(MessageError, match="behind"):
        parse(SyncUp(1, b"abc", Share.WEIGHTS, 3).head(), b"ab")
    with pytest.raises(MessageError):
        parse(Ask(1, Share.WEIGHTS).head()[:-1] + b"\x09", b"")


def test_weights_keep_their_order_and_are_checked() -> None:
    weights = {2: 1 / 3, 0: 2 / 3}
    message = Combine(1, Combine.pack_weights(weights), 0, 0, 0.1, True, 2)
    assert list(message.weights.items()) == list(weights.items())
    for body in (b"", message.body[:-1]):
        with pytest.raises(MessageError, match="clients and weights"):
            _ = Combine(1, body, 0, 0, 0.1, True, 2).weights


def test_sums_keep_every_bit_and_are_whole_numbers_of_bytes() -> None:
    values = (0.1, -3.0, 2.0**60)
    message = Sums(1, Sums.pack_values(values), 5)
    assert len(message.body) == 24
    assert message.values == values
    with pytest.raises(MessageError, match="23 bytes are no list of numbers"):
        _ = Sums(1, message.body[:-1], 5).values


def test_loopback_delivers_bytes_in_order_and_counts_them() -> None:
    seen = []

    def client(message: Message) -> list[Message]:
        seen.append(message)
        return [Smashed(message.number, b"x" * 100), Labels(message.number, b"y", 1)]

    meter = Meter()
    loopback = Loopback([client, client], meter)
    begin = BeginStep(0, 0, 0, 0.1, Share.NOTHING)
    loopback.announce([0, 1], begin)
    assert not seen  # each begins when it is asked
    assert loopback.receive(1) == Smashed(0, b"x" * 100)
    assert seen == [begin]
    assert loopback.receive(1) == Labels(0, b"y", 1)
    loopback.send(0, Gradient(0, b"g" * 10))
    assert seen == [begin, begin, Gradient(0, b"g" * 10)]
    counted = meter.snapshot()
    assert counted["up/smashed"] == 300
    assert counted["up/labels"] == 3
    assert counted["down/gradients"] == 10
    assert counted[f"down/{Kind.CONTROL}"] == 2 * begin.size
    with pytest.raises(MessageError, match="too many"):
        loopback.receive(1)
