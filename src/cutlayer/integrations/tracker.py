"""Experiment trackers: the records of a run go to trackio or to Weights & Biases as they are written.

Both have the same three calls: init, log, finish. A tracker has the methods of the TensorBoard log: `step`,
`epoch` and `close`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from cutlayer.config.schema import Config
from cutlayer.errors import ConfigError
from cutlayer.imports import need
from cutlayer.training.tensorboard import numbers

#: Trackers by name: the module to import and the extra that installs it.
TRACKERS = {"trackio": "trackio", "wandb": "wandb"}


class RunLogger(Protocol):
    """What takes the records of a run: TensorBoard, a tracker, or your own."""

    def step(self, record: dict[str, Any]) -> None:
        """A step is complete."""

    def epoch(self, record: dict[str, Any]) -> None:
        """An epoch is complete."""

    def close(self) -> None:
        """There are no more records."""


class Tracker:
    """A run in an experiment tracker. Every number of a record becomes a curve, as in TensorBoard.

    >>> train(config, listeners=[Tracker("trackio", config)])
    """

    def __init__(self, name: str, config: Config, project: str = "cutlayer") -> None:
        if name not in TRACKERS:
            raise ConfigError(f"there is no tracker {name!r}; choose from {', '.join(TRACKERS)}")
        self._module = need(name, f"the tracker {name}", TRACKERS[name])
        settings = config.model_dump(mode="json")
        # Where the run lies on this machine is nobody's business.
        settings.pop("output", None)
        self._module.init(project=project, name=Path(config.output.dir).name, config=settings)

    def step(self, record: dict[str, Any]) -> None:
        """See `RunLogger.step`."""
        self._log("step", record)

    def epoch(self, record: dict[str, Any]) -> None:
        """See `RunLogger.epoch`."""
        self._log("epoch", record)

    def close(self) -> None:
        """See `RunLogger.close`."""
        self._module.finish()

    def _log(self, kind: str, record: Mapping[str, Any]) -> None:
        self._module.log(dict(numbers(record, kind)), step=record["global_step"])
