import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from cutlayer.errors import MessageError
from cutlayer.wire.messages.envelope import (
    DOWN,
    MOST_MESSAGES,
    UP,
    Packet,
    content_of,
    opener,
    seal,
    to_bytes,
)
from cutlayer.wire.messages.protobuf import message_class

KINDS = {UP: "Up", DOWN: "Down"}
NUMBERS = st.integers(0, (1 << 64) - 1)


@given(
    st.sampled_from([UP, DOWN]),
    NUMBERS,
    NUMBERS,
    st.lists(st.binary(max_size=300), max_size=3),
    st.booleans(),
)
def test_the_bytes_are_those_of_protobuf(
    field: int, number: int, received: int, parts: list[bytes], more: bool
) -> None:
    data = message_class("Data")(number=number, received=received, message=b"".join(parts), more=more)
    sealed = seal(field, number, received, tuple(parts), more)
    assert sealed == message_class(KINDS[field])(data=data).SerializeToString()
    assert opener(field, KINDS[field])(sealed) == Packet(number, received, memoryview(b"".join(parts)), more)


@given(
    st.sampled_from([UP, DOWN]),
    NUMBERS,
    st.binary(max_size=300),
    st.lists(st.binary(max_size=300), min_size=1, max_size=MOST_MESSAGES - 1),
)
def test_several_messages_are_the_bytes_of_protobuf(
    field: int, number: int, first: bytes, further: list[bytes]
) -> None:
    data = message_class("Data")(number=number, received=3, message=first, further=further)
    sealed = seal(field, number, 3, (first,), further=[(part[:1], part[1:]) for part in further])
    assert sealed == message_class(KINDS[field])(data=data).SerializeToString()
    found = opener(field, KINDS[field])(sealed)
    assert found == Packet(number, 3, memoryview(first), False, tuple(map(memoryview, further)))


def test_too_many_messages_at_once_are_not_taken() -> None:
    # Otherwise millions of empty ones would fit into one.
    sealed = seal(UP, 1, 0, (b"a",), further=[(b"b",)] * MOST_MESSAGES)
    with pytest.raises(MessageError, match="more than 16 messages at once"):
        opener(UP, "Up")(sealed)


@given(st.binary(max_size=40), st.integers(0, 60))
def test_other_bytes_mean_what_they_mean_to_protobuf(noise: bytes, cut: int) -> None:
    data = (seal(UP, 300, 7, (b"some message",)) + noise)[: cut + len(noise)]
    try:
        expected = message_class("Up").FromString(data)
    except DecodeError:
        with pytest.raises(MessageError, match="that are no Up"):
            opener(UP, "Up")(data)
        return
    found = opener(UP, "Up")(data)
    assert content_of(found) == expected.WhichOneof("content")
    if isinstance(found, Packet):
        assert found.number == expected.data.number
        assert found.message == expected.data.message


def test_other_messages_go_through_the_library() -> None:
    up = message_class("Up")(hello=message_class("Hello")(protocol=1))
    assert opener(UP, "Up")(to_bytes(up)) == up
    assert to_bytes(b"sealed") == b"sealed"
