"""Experiment trackers that are asked for with --tracker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutlayer.config.schema import Config
    from cutlayer.integrations.tracker import RunLogger


@contextmanager
def tracked(names: Sequence[str] | None, config: Config) -> Iterator[list[RunLogger]]:
    """Trackers for the time of a run, which are closed behind it."""
    with ExitStack() as stack:
        loggers: list[RunLogger] = []
        if names:
            from cutlayer.integrations.tracker import Tracker

            loggers = [stack.enter_context(closing(Tracker(name, config))) for name in names]
        yield loggers
