import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlayer.errors import MessageError
from cutlayer.wire.loopback import Loopback
from cutlayer.wire.messages.base import Message
from cutlayer.wire.messages.named import Named, join_named, split_named
from cutlayer.wire.messages.remote_loop import Backward, Forward, InputGradients, Leave, Outputs, Rejected
from cutlayer.wire.messages.scores import Scores, Sums
from cutlayer.wire.messages.types import (
    TYPES,
    Ask,
    BeginStep,
    Combine,
    Evaluate,
    Gradient,
    Labels,
    Placeholder,
    Report,
    Share,
    Smashed,
    State,
    SyncDown,
    SyncUp,
    head_size,
    parse,
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
    Forward(7, Forward.pack_tensors([Named("inputs", Kind.SMASHED, b"frame")]), 2**62, True, False),
    Outputs(7, Outputs.pack_tensors([Named("outputs", Kind.SMASHED, b"frame")]), 0.5),
    Backward(7, Backward.pack_tensors([Named("outputs", Kind.GRADIENTS, b"frame")]), 2**62, 0.5),
    InputGradients(7, InputGradients.pack_tensors([Named("inputs", Kind.GRADIENTS, b"frame")])),
    Rejected(7, b"why"),
    Leave(0),
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


NAMED = [
    Named("inputs", Kind.SMASHED, b"frame"),
    Named("mask", Kind.LABELS, b""),
    Named("y", Kind.LABELS, b"12"),
]


def test_named_tensors_survive_their_bytes_and_count_by_kind() -> None:
    assert split_named(join_named(NAMED)) == NAMED
    assert split_named(join_named([])) == []
    message = Forward(0, Forward.pack_tensors(NAMED), 1, True, True)
    assert message.tensors == NAMED
    sizes = message.sizes()
    assert (sizes[Kind.SMASHED], sizes[Kind.LABELS]) == (5, 2)
    assert sum(sizes.values()) == len(message.body)


@given(st.data())
def test_damaged_tables_of_tensors_are_refused_or_read(data: st.DataObject) -> None:
    body = bytearray(join_named(NAMED))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(body[: data.draw(st.integers(1, len(body)))])
    try:
        found = split_named(damaged)
    except MessageError:
        return
    assert sum(len(entry.data) for entry in found) < len(damaged)


@pytest.mark.parametrize(
    "body",
    [
        b"\0",
        b"\xff",
        join_named([NAMED[0]]) + b"x",
        join_named([NAMED[0]])[:-1],
        join_named([NAMED[0], NAMED[0]]),
        join_named([NAMED[0]]).replace(b"inputs", b"\xff" * 6),
    ],
)
def test_a_table_that_cannot_be_is_refused(body: bytes) -> None:
    with pytest.raises(MessageError):
        split_named(body)
