"""The records of a run as TensorBoard curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cutlayer.errors import FileError
from cutlayer.imports import need


class TensorBoard:
    """Writes every number of a record as a curve, named after its key and kept apart by kind.

    Nested records become paths: `{"bytes": {"up": 10}}` of a step is the curve `step/bytes/up`. A
    resumed run passes the step of its checkpoint, and what an earlier process wrote beyond it is hidden.
    """

    def __init__(self, directory: str | Path, resumed_at: int | None = None) -> None:
        need("tensorboard", "the TensorBoard log")
        from torch.utils.tensorboard import SummaryWriter

        purge = None if resumed_at is None else resumed_at + 1
        self._directory = directory
        with self._named():
            self._writer: Any = SummaryWriter(str(directory), purge_step=purge)

    def step(self, record: Mapping[str, Any]) -> None:
        """Log one training step."""
        self._log("step", record)

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Log the end of an epoch."""
        self._log("epoch", record)

    def close(self) -> None:
        """Flush and close the event file."""
        # If there is no room for it, the records have it all, and what ended the run is worth more.
        with suppress(OSError):
            self._writer.close()

    def _log(self, kind: str, record: Mapping[str, Any]) -> None:
        with self._named():
            for name, value in numbers(record, kind):
                self._writer.add_scalar(name, value, record["global_step"])

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise FileError(
                f"{self._directory}: cannot be written ({error.strerror}); make room and resume the run, or "
                "do without: --set output.tensorboard=false"
            ) from error


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
