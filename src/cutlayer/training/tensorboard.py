"""The records of a run as TensorBoard curves."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cutlayer.errors import FileError
from cutlayer.files import reason
from cutlayer.imports import need


class TensorBoard:
    """Writes every number of a record as a curve, named after its key and kept apart by kind.

    Nested records become paths: `{"bytes": {"up": 10}}` of a step is the curve `step/bytes/up`. A
    resumed run passes the step of its checkpoint, and what an earlier process wrote beyond it is hidden.

    Each record is one write, in the caller's thread. The writers of TensorBoard and PyTorch have a thread of
    their own, which shows a traceback when the disk is full.
    """

    def __init__(self, directory: str | Path, resumed_at: int | None = None) -> None:
        why = "the TensorBoard log"
        event = need("tensorboard.compat.proto.event_pb2", why)
        self._event: Any = event.Event
        self._summary: Any = need("tensorboard.compat.proto.summary_pb2", why).Summary
        self._directory = Path(directory)
        with self._named():
            self._directory.mkdir(parents=True, exist_ok=True)
            self._file = self._new_name().open("xb", buffering=0)
        writer = need("tensorboard.summary.writer.record_writer", why)
        self._records: Any = writer.RecordWriter(_Whole(self._file))
        self._write(file_version="brain.Event:2")
        if resumed_at is not None:
            self._write(step=resumed_at + 1, session_log=event.SessionLog(status=event.SessionLog.START))

    def step(self, record: Mapping[str, Any]) -> None:
        """Log one training step."""
        self._log("step", record)

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Log the end of an epoch."""
        self._log("epoch", record)

    def close(self) -> None:
        """Close the event file. Everything is written already."""
        self._file.close()

    def _new_name(self) -> Path:
        """TensorBoard reads the files of a folder in the order of their names."""
        files = sum(1 for _ in self._directory.iterdir())
        place = f"{socket.gethostname()}.{os.getpid()}.{files:06d}"
        return self._directory / f"events.out.tfevents.{int(time.time()):010d}.{place}"

    def _log(self, kind: str, record: Mapping[str, Any]) -> None:
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in numbers(record, kind)]
        self._write(step=record["global_step"], summary=self._summary(value=values))

    def _write(self, **content: Any) -> None:
        with self._named():
            self._records.write(self._event(wall_time=time.time(), **content).SerializeToString())

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise FileError(
                f"{self._directory}: cannot be written ({reason(error)}); make room and resume the run, or "
                "do without: --set output.tensorboard=false"
            ) from error


class _Whole:
    """A file whose writes are complete, or an error."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: bytes) -> None:
        """Write all of it."""
        if self._file.write(data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def numbers(record: Mapping[str, Any], prefix: str) -> list[tuple[str, float]]:
    """The numbers in a nested record, each with the path of its keys."""
    found: list[tuple[str, float]] = []
    for key, value in record.items():
        if key == "global_step":
            continue
        if isinstance(value, Mapping):
            found += numbers(value, f"{prefix}/{key}")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found.append((f"{prefix}/{key}", float(value)))
    return found
