"""The dashboard of a run in a process of its own, started by the run and ended with it.

Web requests, however many, then take no time of the process that trains, and nothing that a browser sends
reaches it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cutlayer.dashboard.http_server import Place
from cutlayer.errors import UnreachableError

_PATIENCE = 10.0


@contextmanager
def dashboard_process(directory: Path, place: Place) -> Iterator[str]:
    """Show a run for the time of the block; gives the address of the page."""
    options = ["--listen", place.address]
    for flag, path in (("--cert", place.cert), ("--key", place.key), ("--tokens", place.tokens)):
        options += [] if path is None else [flag, str(path)]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "cutlayer", "dashboard", str(directory), *options, "--attached"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Ctrl-C in a terminal goes to the run, which saves its step first; the page stays until then.
        start_new_session=True,
    )
    try:
        if process.stdout is None or process.stdin is None or process.stderr is None:
            raise RuntimeError("the process was started with pipes")
        url = process.stdout.readline().strip()
        if not url:
            said = process.stderr.read().strip().removeprefix("cutlayer: ")
            raise UnreachableError(f"the dashboard did not start: {said or 'it gave no reason'}")
        yield url
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    # At the end of its input it shows the last state once more, and goes.
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
