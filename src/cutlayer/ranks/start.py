"""Ranks that torchrun has started agree on which start this is, so that nothing of an earlier one counts.

torchrun keeps one store for all starts of a job, with the addresses that ranks of an earlier one left in it.
How often a machine's ranks were started again (TORCHELASTIC_RESTART_COUNT) does not tell them apart: only
machines with a rank that failed count it. But all ranks of one start are gone before those of the next begin.
"""

from __future__ import annotations

import json
import secrets
import time
from typing import Any, NamedTuple

_BEGUN, _RUN = "cutlayer/begun", "cutlayer/run"
_GLANCE = 0.05


class Start(NamedTuple):
    """One start of all ranks."""

    name: str
    """Unlike that of any other start."""
    goes_on: bool
    """Whether ranks of an earlier one began a run."""


def agree_on_start(store: Any, rank: int, world: int) -> Start:
    """Wait for all ranks of this start. `store` is a store of torch.distributed that all of them have.

    Rank 0 names the start, and shows whom it has seen. A rank believes it when it sees itself there: no rank
    0 of an earlier start can have seen it.
    """
    return _lead(store, world) if rank == 0 else _follow(store, rank)


def run_begins(store: Any) -> None:
    """The ranks of this start begin a run, with which those of the next are to go on."""
    store.set(_RUN, "begun")


def _lead(store: Any, world: int) -> Start:
    start = Start(secrets.token_hex(8), bool(_read(store, _RUN)))
    shown: dict[str, str] = {}
    while True:
        seen = {str(rank): found for rank in range(1, world) if (found := _read(store, _here(rank)))}
        if seen != shown:
            store.set(_BEGUN, json.dumps({**start._asdict(), "seen": seen}))
            shown = seen
        if all(_read(store, _agreed(rank)) == start.name for rank in range(1, world)):
            return start
        time.sleep(_GLANCE)


def _follow(store: Any, rank: int) -> Start:
    myself = secrets.token_hex(8)
    store.set(_here(rank), myself)
    while True:
        begun = json.loads(_read(store, _BEGUN) or "{}")
        if begun and begun["seen"].get(str(rank)) == myself:
            store.set(_agreed(rank), begun["name"])
            return Start(begun["name"], begun["goes_on"])
        time.sleep(_GLANCE)


def _here(rank: int) -> str:
    return f"cutlayer/here/{rank}"


def _agreed(rank: int) -> str:
    return f"cutlayer/agreed/{rank}"


def _read(store: Any, key: str) -> str:
    """What the store has; nothing if it has nothing. `get` alone would wait for it."""
    if not store.check([key]):
        return ""
    found: bytes = store.get(key)
    return found.decode()
