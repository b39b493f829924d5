"""The events of a run in words: connections, refusals, rollbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Event = Mapping[str, Any]


def _client(event: Event) -> str:
    number, name = event.get("client"), event.get("name")
    if number is None:
        return "a client"
    return f"client {number} ({name})" if name else f"client {number}"


_WORDS: dict[str, Callable[[Event], str]] = {
    "server-listening": lambda e: f"listening on port {e.get('port')} for {e.get('clients')} clients",
    "server-stopped": lambda e: f"the server has stopped: {e.get('reason')}",
    "client-ready": lambda e: f"{_client(e)} is ready, with {e.get('samples')} samples",
    "client-resumed": lambda e: f"{_client(e)} has reconnected and goes on",
    "client-left": lambda e: f"the connection of {_client(e)} has ended",
    "client-dropped": lambda e: f"{_client(e)} did not answer in time; the run goes on without it",
    "client-expelled": lambda e: f"{_client(e)} broke the protocol and was disconnected: {e.get('reason')}",
    "refused": lambda e: f"refused: {_client(e)}: {e.get('error') or e.get('why') or e.get('reason')}",
    "rollback": lambda e: f"going back to step {e.get('step')}: {e.get('reason')}",
    "connections-closed": lambda e: f"{e.get('number')} connections of strangers were closed",
    "tokens-reloaded": lambda e: "the file of tokens was read again",
    "tokens-damaged": lambda e: f"the file of tokens cannot be read: {e.get('error')}",
    "run-started": lambda e: f"training begins: {e.get('steps')} steps",
    "run-resumed": lambda e: f"training goes on from step {e.get('step')} of {e.get('steps')}",
    "run-complete": lambda e: "the run is complete",
    "run-stopped": lambda e: "the run was stopped; it can be resumed",
    "run-failed": lambda e: f"the run has failed: {e.get('error')}",
    "note": lambda e: str(e.get("text")),
}
# Longer texts come from peers who want to fill the page.
_LONGEST = 400


def in_words(event: Event) -> dict[str, Any]:
    """An event as the page shows it."""
    name = str(event.get("event"))
    say = _WORDS.get(name)
    rest = {k: v for k, v in event.items() if k not in ("time", "level", "event")}
    text = say(event) if say is not None else f"{name} {rest}"
    level = str(event.get("level", "info"))
    return {
        "time": str(event.get("time", "")),
        "level": level if level in ("info", "warning", "error") else "info",
        "text": text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…",
    }
