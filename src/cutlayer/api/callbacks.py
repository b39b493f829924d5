"""Callbacks: functions of the user's that see steps, evaluations and epochs, and can stop a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cutlayer.errors import ConfigError
from cutlayer.interrupt import Interrupt

Kind = Literal["step", "evaluation", "epoch"]


@dataclass(frozen=True)
class Event:
    """Something that a run has done. `record` is what `records.jsonl` has of it.

    An evaluation comes before the epoch that ends with it; both have the record of the epoch.
    """

    kind: Kind
    record: dict[str, Any]
    stop: Callable[[], None] = field(default=lambda: None, repr=False)
    """Ends the run after this step. It is saved and can be resumed."""


#: A function of the user's.
Callback = Callable[[Event], object]


class Callbacks:
    """Tells callbacks what a trainer tells its listeners: see `Listener`."""

    def __init__(self, callbacks: Sequence[Callback], interrupt: Interrupt) -> None:
        if callable(callbacks) or not all(map(callable, callbacks)):
            raise ConfigError("callbacks= is a list of functions of an Event: callbacks=[function]")
        self._callbacks = tuple(callbacks)
        self._interrupt = interrupt

    def step(self, record: dict[str, Any]) -> None:
        """A step is complete."""
        self._tell("step", record)

    def epoch(self, record: dict[str, Any]) -> None:
        """An epoch is complete."""
        if record.get("test_loss") is not None:
            self._tell("evaluation", record)
        self._tell("epoch", record)

    def _tell(self, kind: Kind, record: dict[str, Any]) -> None:
        for callback in self._callbacks:
            callback(Event(kind, record, self._interrupt.stop))
