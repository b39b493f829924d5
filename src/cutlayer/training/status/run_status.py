"""The status of a run while it goes on, for whoever watches it: `status.json` and `events.jsonl`.

Both are in the run's directory. They tell what records do not: whether the process is alive, how much there
is to do in all, and over the network how each client is right now. Watching a run is reading its files, so it
cannot hold up training. A status that cannot be written is done without.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cutlayer.wire import log

STATUS_FILE = "status.json"
EVENTS_FILE = "events.jsonl"
#: Seconds between two looks at the clients. A look that takes long makes them rarer: half a percent at most.
EVERY = 0.4
_SHARE = 200

Roster = Callable[[], list[dict[str, Any]]]


class RunStatus:
    """Keeps the status of a run in its directory. Use it in `with`, around the whole run.

    `roster` gives the clients of a run over the network; a thread then asks it a few times a second.
    """

    def __init__(self, directory: str | Path, roster: Roster | None = None) -> None:
        self._directory = Path(directory)
        self._roster = roster
        self._about: dict[str, Any] = {
            "format": 1,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "began": time.time(),
            "network": roster is not None,
            "state": "waiting for clients" if roster is not None else "training",
            "reason": "",
        }
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="run-status", daemon=True)
        self._resources = ExitStack()

    def training(self, epochs: int, steps: int, done: int) -> None:
        """Training begins, or goes on after `done` steps."""
        self._set(state="training", epochs=epochs, steps=steps, resumed_at=done, since=time.time())
        log.event("run-resumed" if done else "run-started", step=done, steps=steps)

    def __enter__(self) -> Self:
        with suppress(OSError):
            self._directory.mkdir(parents=True, exist_ok=True)
        self._resources.enter_context(log.also_logged(self._directory / EVENTS_FILE))
        self._set()
        if self._roster is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        state = "complete" if kind is None else "stopped" if kind is KeyboardInterrupt else "failed"
        reason = str(error) if state == "failed" else ""
        log.event(f"run-{state}", "error" if state == "failed" else "info", error=error if reason else None)
        self._set(state=state, reason=reason, ended=time.time())
        self._resources.close()
        if not (self._directory / "config.toml").exists():
            self._forget()

    def _forget(self) -> None:
        """The run ended before it had settings: leave nothing behind."""
        for name in (STATUS_FILE, EVENTS_FILE):
            with suppress(OSError):
                (self._directory / name).unlink(missing_ok=True)
        with suppress(OSError):  # there is something else in it
            self._directory.rmdir()

    def _watch(self) -> None:
        pause = EVERY
        while not self._ended.wait(pause):
            began = time.thread_time()
            self._set()
            pause = max(EVERY, _SHARE * (time.thread_time() - began))

    def _set(self, **changes: Any) -> None:
        with self._lock:
            self._about |= changes
            clients = [] if self._roster is None else self._roster()
            text = json.dumps({**self._about, "time": time.time(), "clients": clients})
            # Renamed, so that a reader never sees half of it, but not flushed to the disk: after a power
            # failure nobody asks for it.
            temporary = self._directory / f"{STATUS_FILE}.{os.getpid()}.new"
            with suppress(OSError):
                temporary.write_text(text, encoding="utf-8")
                temporary.replace(self._directory / STATUS_FILE)
