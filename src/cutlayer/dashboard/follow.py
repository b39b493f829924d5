"""Read a file of JSON lines while another process appends to it, each line once."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Enough for some thousand records at once; the rest comes with the next look.
_CHUNK = 4 << 20


@dataclass(frozen=True)
class News:
    """What has come since the last look."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    restarted: bool = False
    """The file was replaced, or cut back by a rollback: these lines are from its beginning."""
    more: bool = False
    """There is more to read at once."""


class Follower:
    """Follows one file, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._identity: tuple[int, int] | None = None
        self._last = b""

    def read(self) -> News:
        """The lines since the last call. Lines that are no JSON objects are left out."""
        try:
            with self._path.open("rb") as file:
                return self._read(file)
        except OSError:
            restarted = self._offset > 0
            self._forget()
            return News(restarted=restarted)

    def _read(self, file: Any) -> News:
        restarted = self._offset > 0 and not self._continues(file)
        if restarted:
            self._forget()
        file.seek(self._offset)
        chunk = file.read(_CHUNK)
        end = chunk.rfind(b"\n") + 1
        if not end and len(chunk) == _CHUNK:
            end = len(chunk)  # no record is that long: whatever it is, leave it out
        lines = chunk[:end].splitlines(keepends=True)
        self._offset += end
        if lines:
            self._last = lines[-1]
        return News([found for line in lines if (found := _parse(line))], restarted, len(chunk) == _CHUNK)

    def _continues(self, file: Any) -> bool:
        """Whether the file still has what was read of it: the same file, with the same last line."""
        about = os.fstat(file.fileno())
        known = self._identity
        self._identity = about.st_dev, about.st_ino
        if (known is not None and known != self._identity) or about.st_size < self._offset:
            return False
        file.seek(self._offset - len(self._last))
        return bool(file.read(len(self._last)) == self._last)

    def _forget(self) -> None:
        self._offset, self._last = 0, b""


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
