"""The finished cells of an experiment, in an append-only `records.jsonl`.

Lines are of three kinds: `settings` once at the top, `session` for each process that computed cells, and
`cell` for each finished cell. A cell that is in the file is never computed again.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from cutlayer.errors import ConfigError, FileError, RecordError
from cutlayer.files import locked_log, reason
from cutlayer.plain_json import to_json

NAME = "records.jsonl"
Record = dict[str, Any]


class CellRecords:
    """The finished cells of one experiment, in its folder."""

    def __init__(self, folder: str | Path, settings: Mapping[str, Any]) -> None:
        self.path = Path(folder, NAME)
        self.finished: dict[str, Record] = {}
        self.provenance: dict[str, Any] = {}
        """Of the last session that computed a cell."""
        self.commands: list[str] = []
        with ExitStack() as resources:
            self._file = resources.enter_context(
                locked_log(self.path, f"{self.path}: another process is computing this; wait for it")
            )
            made_with = self._read()
            plain = json.loads(to_json(settings))
            if made_with is None:
                self._write({"kind": "settings", "settings": plain})
            elif made_with != plain:
                raise ConfigError(self._differences(made_with, plain))
            self._resources = resources.pop_all()

    def session(self, provenance: Mapping[str, Any]) -> None:
        """Record the provenance of the cells that follow."""
        self.provenance = dict(provenance)
        self._remember(str(provenance.get("command", "")))
        self._write({"kind": "session", "provenance": self.provenance})

    def add(self, key: str, record: Mapping[str, Any]) -> None:
        """Record a finished cell."""
        self.finished[key] = json.loads(to_json(record))
        self._write({"kind": "cell", "cell": key, **record})

    def close(self) -> None:
        """Close the file and release its lock."""
        self._resources.close()

    def _read(self) -> dict[str, Any] | None:
        settings: dict[str, Any] | None = None
        whole = 0
        lines = self.path.read_bytes().splitlines(keepends=True)
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line) if line.endswith(b"\n") else None
                kind = record.pop("kind") if record is not None else None
            except (ValueError, AttributeError, KeyError):
                kind, record = None, None
            if record is None:
                # Only the last line can be torn, by a process that was killed.
                if number < len(lines):
                    raise RecordError(f"{self.path}: line {number} is not a record; the file is damaged")
                break
            if kind == "settings":
                settings = record["settings"]
            elif kind == "session":
                self.provenance = record["provenance"]
                self._remember(str(self.provenance.get("command", "")))
            elif kind == "cell":
                self.finished[record.pop("cell")] = record
            whole += len(line)
        os.ftruncate(self._file.fileno(), whole)
        return settings

    def _remember(self, command: str) -> None:
        if command and command not in self.commands:
            self.commands.append(command)

    def _differences(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
        keys = sorted({*before, *now})
        told = [f"{k}: {before.get(k)}, now {now.get(k)}" for k in keys if before.get(k) != now.get(k)]
        return (
            f"{self.path.parent}: has results of other settings ({'; '.join(told)}). "
            "Give another --out, or remove that folder to begin anew"
        )

    def _write(self, record: Mapping[str, Any]) -> None:
        line = (to_json(record) + "\n").encode()
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise FileError(
                f"{self.path}: cannot be written ({reason(error)}); free some space and go on"
            ) from error
