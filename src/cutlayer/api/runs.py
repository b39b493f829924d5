"""`cutlayer.load_run`: a run that was trained before, as objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cutlayer.api.settings import run_objects
from cutlayer.config.schema import Config
from cutlayer.data.spec import DataSpec
from cutlayer.split import Part
from cutlayer.training.load_run import open_run
from cutlayer.training.records import read


@dataclass(frozen=True)
class Run:
    """A run's directory, open."""

    directory: Path
    config: Config
    data_spec: DataSpec
    step: int
    """The step of the checkpoint."""
    model: nn.Module
    """The whole model, in evaluation mode."""
    parts: tuple[Part, ...]
    """The client's and the server's part, or head, body and tail. They share the model's weights."""
    records: list[dict[str, Any]]


def load_run(
    path: str | Path,
    *,
    model: nn.Module | None = None,
    at: str = "last",
    note: Callable[[str], None] = lambda text: None,
) -> Run:
    """A run from its directory, at its checkpoint `last`, `best` or of a step's number. No data are needed.

    A model that was trained as a Python object cannot be built from the directory: give one of its class,
    with any weights.
    """
    # Optimizers are of no use here, so any will do.
    objects = replace(
        run_objects(model, None, None), make_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1)
    )
    trained = open_run(path, at, note, objects)
    return Run(
        Path(path),
        trained.config,
        trained.data_spec,
        trained.step,
        trained.model,
        trained.parts,
        list(read(Path(path, "records.jsonl"))),
    )
