"""Events in words that name the client; whatever a peer has said stays short and plain."""

import json

import pytest

from cutlayer.dashboard.event_words import in_words


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"event": "client-left", "client": 2, "name": "cat"}, "the connection of client 2 (cat) has ended"),
        ({"event": "client-resumed", "client": 0}, "client 0 has reconnected and goes on"),
        ({"event": "rollback", "step": 40, "reason": "why"}, "going back to step 40: why"),
        ({"event": "refused", "reason": "token", "why": "unknown"}, "refused: a client: unknown"),
        ({"event": "novel", "level": "info", "x": 1}, "novel {'x': 1}"),
    ],
)
def test_words(event: dict[str, object], words: str) -> None:
    assert in_words(event)["text"] == words


def test_levels_are_known_ones_and_texts_are_short() -> None:
    found = in_words({"event": "refused", "level": "<b>", "error": "x" * 5000, "time": 3})
    assert found["level"] == "info"
    assert len(found["text"]) == 400
    assert json.dumps(found)
