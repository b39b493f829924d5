"""What a party on the network tells its operator: messages, an event log, Prometheus metrics."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cutlayer.commands import show
from cutlayer.commands.options import Flag

Log = Annotated[Path | None, Flag("--log", help="write events to this file, as JSON lines")]
MetricsPort = Annotated[
    int | None, Flag("--metrics", help="serve Prometheus metrics on this port of loopback", min=0)
]

MetricsHost = Annotated[
    str,
    Flag("--insecure-metrics-host", help="serve them on this address instead, to anybody who asks there"),
]


@contextmanager
def event_log(path: Path | None) -> Iterator[None]:
    """Write the events of a block to a file, if there is to be one."""
    from cutlayer.wire import log

    if path is not None:
        log.open_log(path)
    try:
        yield
    finally:
        log.close_log()


def messages(quiet: bool) -> Callable[[str], None]:
    """A function that prints a line to standard error, or one that prints nothing."""

    def note(text: str) -> None:
        if not quiet:
            show.say(text, stderr=True)

    return note


def silence_grpc() -> None:
    """Keep gRPC's own messages off standard error: ours say the same in words.

    Call it before gRPC is imported. A user who sets GRPC_VERBOSITY still gets everything.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
