"""The records of a run: one JSON object a line, in the order in which things happened.

Every record has `kind` (`step` or `epoch`) and `global_step`, the number of steps that were complete
when it was written: the first step's record has 1, and the record of an epoch has that of its last
step. Resuming from a checkpoint of step n therefore drops the records beyond n, and goes on writing.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from cutlayer.errors import FileError, RecordError
from cutlayer.files import atomic_path, locked_log, reason
from cutlayer.plain_json import to_json
from cutlayer.tasks.classification import Classification
from cutlayer.tasks.metric import Metric, metrics_of

TASK_FILE = "task.json"
"""The task's metrics in a run directory: the keys of records that tell how well the model does."""


class RecordWriter:
    """Appends records to a file, each with one unbuffered write. Locks the file for this process.

    Lines that are damaged are left out of it: the file as it was is kept as `*.damaged`, and `warn` is told.

    >>> with RecordWriter("run/records.jsonl") as records:
    ...     records.step({"global_step": 1, "loss": 2.3})
    """

    def __init__(self, path: str | Path, warn: Callable[[str], None] = lambda text: None) -> None:
        self.path = Path(path)
        with ExitStack() as resources:
            self._file = resources.enter_context(
                locked_log(self.path, f"{self.path}: another process is training this run; wait for it")
            )
            if self._set_damage_aside(warn):
                # The file has a successor of its name.
                self._file = resources.enter_context(self.path.open("a+b", buffering=0))
            # A killed process may have left half a line, and the next record must not go on from there.
            self.truncate_after(math.inf)
            self._resources = resources.pop_all()

    def step(self, record: Mapping[str, Any]) -> None:
        """Record one training step."""
        self._write("step", record)

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Record the end of an epoch."""
        self._write("epoch", record)

    def truncate_after(self, global_step: float) -> None:
        """Drop the records of later steps, and a last line that is torn.

        Steps never decrease, so what is to go is all at the end, and shortening a file is one operation
        that a kill cannot leave half done.
        """
        end = 0
        for line, record in _lines(self.path):
            if record is None or record["global_step"] > global_step:
                break
            end += len(line)
        if end != self.path.stat().st_size:
            os.ftruncate(self._file.fileno(), end)

    def _set_damage_aside(self, warn: Callable[[str], None]) -> bool:
        """Keep the file as it is under another name, and its whole records under its own, if some are not."""
        bad = [number for number, (line, record) in enumerate(_lines(self.path), 1) if _damaged(line, record)]
        if not bad:
            return False
        aside = self.path.with_name(f"{self.path.name}.damaged")
        with atomic_path(aside) as copy:
            shutil.copyfile(self.path, copy)
        with atomic_path(self.path) as whole, whole.open("wb") as file:
            file.writelines(line for line, record in _lines(self.path) if record is not None)
        shown = ", ".join(map(str, bad[:5])) + (", ..." if len(bad) > 5 else "")
        warn(
            f"{self.path}: {len(bad)} damaged lines are left out (line {shown}); the file as it was is kept "
            f"as {aside.name}"
        )
        return True

    def sync(self) -> None:
        """Wait until all records are on the disk. Call it before a checkpoint that relies on them."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._unwritten(error) from error

    def close(self) -> None:
        """Close the file and release its lock."""
        self._resources.close()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, kind: str, record: Mapping[str, Any]) -> None:
        if not isinstance(record.get("global_step"), int):
            raise RecordError(f"a record of kind {kind} needs its global_step, a whole number")
        line = (to_json({"kind": kind, **record}) + "\n").encode()
        try:
            # One unbuffered write: what is killed between two records leaves whole lines behind.
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise self._unwritten(error) from error

    def _unwritten(self, error: OSError) -> FileError:
        return FileError(
            f"{self.path}: cannot be written ({reason(error)}); free some space and resume the run"
        )


def read(path: str | Path) -> Iterator[dict[str, Any]]:
    """The records in a file, oldest first. A last line that was cut off by a crash is left out.

    Values that are not finite were written as null.
    """
    damaged = 0
    for number, (_, record) in enumerate(_lines(Path(path)), 1):
        if damaged:
            raise RecordError(
                f"{path}: line {damaged} is not a record of a run; the file is damaged. Resume the run "
                "(--resume): that keeps what is whole, and sets the file aside"
            )
        if record is None:
            damaged = number
        else:
            yield record


def read_metrics(directory: str | Path) -> tuple[Metric, ...]:
    """The metrics of a run, the main one first. Runs of earlier releases are classification."""
    path = Path(directory, TASK_FILE)
    if not path.exists():
        return Classification.metrics
    try:
        return metrics_of(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FileError(f"{path}: is damaged ({error})") from error


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """Each line and its record; None for one that is damaged, or torn at the end of the file."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise FileError(f"{path}: the records cannot be read ({error.strerror})") from error
    with file:
        for line in file:
            yield line, _parse(line)


def _damaged(line: bytes, record: dict[str, Any] | None) -> bool:
    """Whether a line is no record, and not just the beginning of one that a crash cut off."""
    return record is None and line.endswith(b"\n")


def _parse(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or not isinstance(record.get("global_step"), int):
        return None
    return record
