"""What a peer writes reaches the terminal as letters, never as commands to it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlayer.wire.messages.envelope import DOWN, UP, opener
from cutlayer.wire.messages.protobuf import message_class
from cutlayer.wire.text import LONGEST, plain_json, plain_text

CLEAR = "\x1b[2J\x9b31m\u202etxt\r\nroot# "


@given(st.text())
def test_all_that_is_left_is_printable_and_on_one_line(text: str) -> None:
    found = plain_text(text)
    assert found.isprintable()
    assert text.isprintable() == (found == text)


def test_a_flood_of_text_is_cut() -> None:
    assert len(plain_text("x" * 10**6)) == LONGEST


@pytest.mark.parametrize(
    ("field", "kind", "content"),
    [
        (UP, "Up", {"failed": {"reason": CLEAR}}),
        (UP, "Up", {"hello": {"release": CLEAR, "era": CLEAR, "link": CLEAR}}),
        (UP, "Up", {"ready": {"name": CLEAR, "class_names": ["a", CLEAR], "meeting": CLEAR}}),
        (DOWN, "Down", {"goodbye": {"reason": CLEAR}}),
        (DOWN, "Down", {"welcome": {"era": CLEAR, "meeting": CLEAR}}),
        (DOWN, "Down", {"offer": {"aggregator": CLEAR, "link": CLEAR}}),
    ],
)
def test_every_string_of_every_message_is_plain_when_it_enters(field: int, kind: str, content: dict) -> None:
    message = opener(field, kind)(message_class(kind)(**content).SerializeToString())
    (found,) = (getattr(message, name) for name in content)
    for field_, value in found.ListFields():
        for text in [value] if isinstance(value, str) else value:
            assert text.isprintable(), field_.name
    assert "\\x1b[2J" in str(found).replace("\\\\", "\\")


values = st.recursive(st.text(), lambda some: st.lists(some) | st.dictionaries(st.text(), some))


@given(values)
def test_strings_within_json_are_plain_once_it_is_parsed(value: object) -> None:
    def strings(found: object) -> list[str]:
        if isinstance(found, dict):
            return [*map(str, found), *(one for inner in found.values() for one in strings(inner))]
        if isinstance(found, list):
            return [one for inner in found for one in strings(inner)]
        return [found] if isinstance(found, str) else []

    text = json.dumps(value)
    parsed = json.loads(plain_json(text))
    assert all(one.isprintable() for one in strings(parsed))
    if all(one.isprintable() for one in strings(value)):
        assert plain_json(text) == text


def test_settings_keep_their_bytes_and_their_length() -> None:
    settings = json.dumps({"model": {"name": 'größe 😀 \\ " /'}, "more": "x" * 10_000})
    assert plain_json(settings) == settings
