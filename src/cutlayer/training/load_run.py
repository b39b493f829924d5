"""A run that was trained before: its settings, and its model as any checkpoint has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from cutlayer.config import schema as config
from cutlayer.config.schema import Config
from cutlayer.data.federated import FederatedData
from cutlayer.data.spec import DATA_SPEC_FILE, DataSpec
from cutlayer.errors import CheckpointError, ConfigError, FileError
from cutlayer.protocol.build import prepare_data, prepare_model
from cutlayer.protocol.objects import BY_NAME, RunObjects
from cutlayer.split import Part
from cutlayer.training import checkpoint
from cutlayer.training.local_run import LocalRun, local_run

Warn = Callable[[str], None]


@dataclass(frozen=True)
class Trained:
    """A trained model, cut as it was trained."""

    config: Config
    data_spec: DataSpec
    step: int
    model: nn.Module
    parts: tuple[Part, ...]


def settings(directory: str | Path, codec: str | None = None) -> Config:
    """The configuration of a run; with `codec`, as if that one compressed the smashed data."""
    path = Path(directory, "config.toml")
    if not path.is_file():
        raise FileError(f"{directory}: not the directory of a run: it has no config.toml")
    # Wherever it was trained, it is opened on this machine.
    changed = config.load(path).model_dump()
    changed["train"]["device"] = "cpu"
    if codec is not None:
        changed["codec"]["up"] = codec
    return config.from_mapping(changed, str(path))


def restore(
    directory: str | Path,
    at: str,
    run_config: Config,
    data: FederatedData,
    warn: Warn,
    objects: RunObjects = BY_NAME,
) -> LocalRun:
    """A run in the state of a checkpoint: `last`, `best`, or a step's number."""
    run = local_run(run_config, data, objects=objects)
    found = find(directory, at, warn)
    run.restore(found.tensors, found.state["session"])
    return run


def open_run(
    directory: str | Path,
    at: str = "last",
    warn: Warn = lambda text: None,
    objects: RunObjects = BY_NAME,
) -> Trained:
    """The model of a run. Its data are not needed."""
    run_config = settings(directory)
    known = describe(directory, run_config)
    run = restore(directory, at, run_config, known.placeholder_data(), warn, objects)
    model, parts = prepare_model(run_config, run.data.train, objects.models)
    model.load_state_dict(run.model().state_dict())
    for part in parts:
        part.eval()
    return Trained(run_config, known, run.number, model.eval(), parts)


def describe(directory: str | Path, run_config: Config) -> DataSpec:
    """What is known of a run's data: from `data.json`, or where that is missing, from the data themselves."""
    if Path(directory, DATA_SPEC_FILE).exists():
        return DataSpec.read(directory)
    return DataSpec.of(prepare_data(run_config))


def find(directory: str | Path, at: str, warn: Warn) -> checkpoint.Checkpoint:
    """The checkpoint that is meant."""
    folder = Path(directory, "checkpoints")
    steps = checkpoint.steps(folder)
    if not steps:
        raise CheckpointError(f"{directory}: the run has no checkpoint yet")
    if at in ("last", "best"):
        last = checkpoint.latest(folder, warn)
        if last is None:
            raise CheckpointError(f"{directory}: the run has no checkpoint yet")
        best = last.state.get("best")
        return checkpoint.load(checkpoint.path_of(folder, best[1])) if at == "best" and best else last
    if not at.isdecimal():
        raise ConfigError(f"a checkpoint is 'last', 'best' or the number of a step, not {at!r}")
    if int(at) not in steps:
        kept = ", ".join(map(str, steps))
        raise CheckpointError(f"{directory}: there is no checkpoint of step {at}; there are: {kept}")
    return checkpoint.load(checkpoint.path_of(folder, int(at)))
