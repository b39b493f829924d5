"""Elastic membership: clients join and leave a run over the network while it goes on.

A run begins when its quorum is there and has as many places as it has clients at most. Whoever shows a good
credential gets the next free place, and keeps it by name: the names are in the run's directory, so that a
server that is started again gives everybody the same place.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cutlayer.errors import ConfigError, FileError
from cutlayer.files import write_atomically
from cutlayer.wire.policy import Policy

NAMES_FILE = "clients.json"


def check_elastic(policy: Policy, clients_per_step: int) -> None:
    """Raise unless clients may join and leave a run with these settings."""
    if not policy.elastic:
        return
    if policy.straggler != "drop":
        raise ConfigError(
            "--elastic: a run that waits for every client cannot go on without one; use --straggler drop"
        )
    if not clients_per_step:
        raise ConfigError(
            "--elastic: clients that may leave at any time keep nothing between rounds; set "
            "train.clients_per_step, to train.clients if everybody who is there should take part"
        )


def read_names(directory: Path, resume: bool, given: Sequence[str], places: int) -> tuple[str, ...]:
    """Who has which place: as in the run that is resumed, or in the order given if that fits."""
    path = directory / NAMES_FILE
    if not (resume and path.exists()):
        return tuple(given) if len(given) <= places else ()
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not (isinstance(found, list) and all(isinstance(name, str) for name in found)):
            raise ValueError("a list of names is expected")
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: cannot be read ({error}); restore it, or start a new run") from error
    if len(found) > places:
        raise ConfigError(f"{path} names {len(found)} clients; train.clients is {places}")
    return tuple(found)


class NamesFile:
    """Writes the names down as soon as a step was trained with a new one. A `Listener`."""

    def __init__(self, directory: Path, names: Callable[[], tuple[str, ...]]) -> None:
        self._path = directory / NAMES_FILE
        self._names = names
        self._written: tuple[str, ...] | None = None

    def step(self, record: dict[str, Any]) -> None:
        """See `Listener.step`."""
        names = self._names()
        if names and names != self._written:
            write_atomically(self._path, json.dumps(list(names)) + "\n")
            self._written = names

    def epoch(self, record: dict[str, Any]) -> None:
        """See `Listener.epoch`. Steps have told it all."""
