"""Watch the directory of a run: its records, events and status, as one snapshot for the page."""

from __future__ import annotations

import json
import os
import socket
import time
import tomllib
from collections import deque
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from cutlayer.dashboard.client_view import ClientView, RunFacts
from cutlayer.dashboard.event_words import in_words
from cutlayer.dashboard.follow import Follower
from cutlayer.dashboard.run_view import ACCURACY, Metric, RunView
from cutlayer.training.status.run_status import EVENTS_FILE, STATUS_FILE

_EVENTS = 200
# A process on another machine that has said nothing for so long is taken to be gone.
_SILENCE = 15.0


class Watcher:
    """Reads what is new at each `look`. One thread at a time may use it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._records = Follower(directory / "records.jsonl")
        self._events = Follower(directory / EVENTS_FILE)
        self._run = RunView()
        self._clients = ClientView()
        self._status: dict[str, Any] = {}
        self._config: dict[str, Any] = {}
        self._samples: list[int] = []
        self._numbers = count(1)
        self.events: deque[dict[str, Any]] = deque(maxlen=_EVENTS)
        """The last events, each with a number of its own under `id`."""

    def look(self) -> bool:
        """Read what is new; True if there is more of it than one look takes."""
        if not self._run.step:
            # A run that has not begun has not said yet what its metrics are.
            self._run = RunView(_metrics(self._directory / "task.json"))
        news = self._records.read()
        if news.restarted:
            self._run = RunView(_metrics(self._directory / "task.json"))
        for record in news.lines:
            self._run.add(record)
        happened = self._events.read()
        for event in happened.lines:
            self.events.append({"id": next(self._numbers), **in_words(event)})
        self._status = _json(self._directory / STATUS_FILE) or self._status
        if not self._config:
            self._config = _toml(self._directory / "config.toml")
        if not self._samples:
            found = _json(self._directory / "data.json").get("samples", [])
            self._samples = [n for n in found if isinstance(n, int)] if isinstance(found, list) else []
        return news.more or happened.more

    def snapshot(self) -> dict[str, Any]:
        """Everything but the curves and events, as plain JSON."""
        run, status = self._run, self._status
        state = self._state()
        steps, epochs = status.get("steps"), status.get("epochs") or self._setting("train", "epochs")
        return {
            "time": time.time(),
            "run": self._directory.resolve().name,
            "state": state,
            "reason": str(status.get("reason", "")),
            "about": self._about(),
            "network": bool(status.get("network")),
            "step": run.step,
            "steps": steps,
            "epoch": run.epoch,
            "epochs": epochs,
            "left_seconds": self._left(state),
            "spent_seconds": self._spent(state),
            "last_step": _modified(self._directory / "records.jsonl"),
            "main": run.main,
            "percent": run.percent,
            "latest": run.latest,
            "traffic": run.traffic,
            "evaluation_bytes": run.evaluation_bytes,
            "seconds": run.seconds,
        }

    def clients(self) -> list[dict[str, Any]]:
        """Every client."""
        link = str(self._setting("link", "spec") or "none")
        links = [] if link == "none" else [piece.strip() for piece in link.split(";")]
        facts = RunFacts(self._samples, self._run.bits, self._run.mean_bits, links)
        over = self._state() not in ("training", "waiting for clients")
        rows = self._status.get("clients")
        if self._status.get("network") and isinstance(rows, list):
            return self._clients.rows(rows, float(self._status.get("time", 0)), facts, over)
        return facts.local_rows(self._run.client_bytes, over)

    def curves(self) -> dict[str, Any]:
        """What is drawn."""
        return self._run.curves()

    def _state(self) -> str:
        """training, waiting for clients, complete, stopped, failed, gone (killed) or unknown."""
        state = str(self._status.get("state", "unknown"))
        if state in ("training", "waiting for clients") and not self._alive():
            return "gone"
        return state

    def _alive(self) -> bool:
        if self._status.get("host") != socket.gethostname():
            last = max(_modified(self._directory / n) or 0 for n in (STATUS_FILE, "records.jsonl"))
            return time.time() - last < _SILENCE
        try:
            os.kill(int(self._status.get("pid", 0)) or os.getpid(), 0)
        except ProcessLookupError:
            return False
        except (OSError, ValueError):
            return True
        return True

    def _left(self, state: str) -> float | None:
        """Seconds until the last step, at the speed since training began in this process."""
        steps, since, first = (self._status.get(key) for key in ("steps", "since", "resumed_at"))
        if state != "training" or not (isinstance(steps, int) and isinstance(since, float)):
            return None
        gained = self._run.step - int(first or 0)
        return (time.time() - since) * (steps - self._run.step) / gained if gained > 0 else None

    def _spent(self, state: str) -> float | None:
        began, ended = self._status.get("since"), self._status.get("ended")
        if not isinstance(began, float) or state == "gone":
            return None
        return (ended if isinstance(ended, float) else time.time()) - began

    def _setting(self, section: str, name: str) -> Any:
        found = self._config.get(section)
        return found.get(name) if isinstance(found, Mapping) else None

    def _about(self) -> str:
        """The settings that matter most, in a line."""
        if not self._config:
            return ""
        cut = self._setting("model", "cut")
        cut = " and ".join(map(str, cut)) if isinstance(cut, list) else cut
        codecs = (f"{name} {self._setting('codec', name)}" for name in ("up", "down", "sync"))
        return (
            f"{self._setting('model', 'name')} cut at {cut}, mode {self._setting('train', 'mode')}, "
            f"{self._setting('train', 'clients')} clients, codecs: {', '.join(codecs)}"
        )


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _metrics(path: Path) -> tuple[Metric, ...]:
    """The metrics of a run's task, the main one first, as its `task.json` has them."""
    rows = _json(path).get("metrics")
    named = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return tuple(Metric(str(row.get("name")), bool(row.get("percent"))) for row in named) or ACCURACY


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _modified(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None
