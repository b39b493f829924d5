"""Structured logs: one JSON object a line, with time, level, event, and what belongs to it. Never a secret.

    log.open_log(Path("server.jsonl"))
    log.event("client-joined", client="camera-0", step=120)

writes `{"time": "2025-01-31T12:00:00.123Z", "level": "info", "event": "client-joined", "client": "camera-0",
"step": 120}`. Secrets are blotted out in the finished line, wherever they stood: values that were named with
`keep_secret`, all that looks like a token or a private key, and fields with a name like `token`.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from cutlayer.errors import ConfigError, FileError
from cutlayer.wire.security.tokens import PATTERN

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
BLOT = "[secret]"
#: A run's own log has two files of this size at most, however many strangers knock.
LARGEST_LOG = 4 << 20

_LOGGER = logging.getLogger("cutlayer.events")
_KEYS = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL)
_BEARER = re.compile(r"(?i)\bbearer\s+[^\s\"\\,]+")
_NAMES = re.compile(r"(?i)token|secret|password|authorization|credential|private|^key$|_key$")
_secrets: set[str] = set()


def keep_secret(value: str | None) -> None:
    """Never write this value into a log, in whatever field or text it turns up."""
    if value and len(value) >= 6:  # blotting out shorter ones would make holes everywhere
        _secrets.add(value)


def open_log(path: Path | None = None, level: str = "info") -> None:
    """Write events from now on, to a file or else to standard error. Closes what was open before."""
    if level not in LEVELS:
        raise ConfigError(f"{level!r} is not a log level; take one of {', '.join(LEVELS)}")
    close_log()
    handler: logging.Handler
    try:
        handler = _Quiet(sys.stderr) if path is None else _QuietFile(path, encoding="utf-8")
    except OSError as error:
        raise FileError(f"{path}: the log cannot be written ({error.strerror})") from error
    handler.setFormatter(JsonLines())
    _LOGGER.addHandler(handler)
    _LOGGER.setLevel(LEVELS[level])
    _LOGGER.propagate = False


def close_log() -> None:
    """Stop writing events, and close the file."""
    for handler in list(_LOGGER.handlers):
        _LOGGER.removeHandler(handler)
        handler.close()


@contextmanager
def also_logged(path: Path) -> Iterator[None]:
    """Write the events of a block to this file, too. A file that cannot be written is done without."""
    try:
        handler = _QuietRotating(path, maxBytes=LARGEST_LOG, backupCount=1, encoding="utf-8")
    except OSError:
        yield
        return
    handler.setFormatter(JsonLines())
    _LOGGER.addHandler(handler)
    _LOGGER.setLevel(logging.INFO)
    _LOGGER.propagate = False
    try:
        yield
    finally:
        _LOGGER.removeHandler(handler)
        handler.close()


def event(name: str, /, level: str = "info", *, error: BaseException | None = None, **fields: Any) -> None:
    """Write what happened. Before `open_log` it goes nowhere."""
    if _LOGGER.handlers and _LOGGER.isEnabledFor(LEVELS[level]):
        if error is not None:
            fields["error"] = f"{type(error).__name__}: {error}"
        _LOGGER.log(LEVELS[level], name, extra={"fields": fields})


class JsonLines(logging.Formatter):
    """A record as one line of JSON without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": when.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": _clean(record.getMessage()),
        }
        for name, value in getattr(record, "fields", {}).items():
            if name not in line:
                line[name] = BLOT if _NAMES.search(name) else _clean(value)
        return json.dumps(line, ensure_ascii=False, allow_nan=False)


def _clean(value: Any) -> Any:
    """A value as plain JSON, with every secret in it blotted out."""
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no word for it
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, dict):
        return {_blot(str(k)): BLOT if _NAMES.search(str(k)) else _clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_clean(item) for item in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        value = bytes(value).decode("utf-8", "replace")
    return _blot(str(value))


def _blot(text: str) -> str:
    for secret in _secrets:
        text = text.replace(secret, BLOT)
    for pattern in (_KEYS, PATTERN, _BEARER):
        text = pattern.sub(BLOT, text)
    return text


class _Quiet(logging.StreamHandler[Any]):
    """A log that cannot be written (disk full, pipe closed) must not disturb a training run."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Drop the line."""


class _QuietFile(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Drop the line."""


class _QuietRotating(RotatingFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Drop the line."""
