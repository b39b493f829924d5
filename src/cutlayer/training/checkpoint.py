"""Checkpoints: the complete state of a run in one file, from which it resumes exactly.

A checkpoint is a plain safetensors file. Its metadata hold JSON: the step, the state that is not
tensors, the settings of the run that it belongs to, and a checksum over all of it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from cutlayer.errors import CheckpointError, FileError
from cutlayer.files import atomic_path, reason, remove_partial_files
from cutlayer.plain_json import from_json
from cutlayer.protocol.state_bytes import unshared

#: A run may be continued to more epochs than it was started with.
_LENGTH = "train.epochs"
_NAME = re.compile(r"step-(\d{9,})\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in memory."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]
    path: Path
    run: dict[str, Any]


def save(
    directory: str | Path,
    step: int,
    tensors: Mapping[str, Tensor],
    state: Mapping[str, Any],
    run: Mapping[str, Any] | None = None,
) -> Path:
    """Write a checkpoint. Whatever happens meanwhile, the ones before it stay valid.

    `state` must be plain JSON. `run` are the settings that make this run what it is: `latest` refuses
    to continue with others. The file gets its name only when it is complete and on the disk.
    """
    target = path_of(directory, step)
    about = json.dumps({"step": step, "run": run or {}, "state": state}, allow_nan=False)
    plain = unshared(tensors)
    try:
        write(target, plain, {"cutlayer": about, "sha256": _digest(about, plain)})
    except FileError as error:
        raise CheckpointError(
            f"{error}. It was to be the checkpoint of step {step}; earlier ones are intact: make room and "
            "resume the run"
        ) from error
    return target


def write(target: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file atomically."""
    with atomic_path(target, parents=True) as temporary:
        try:
            safetensors.torch.save_file(unshared(tensors), temporary, {"format": "pt", **metadata})
        except SafetensorError as error:
            raise FileError(f"{target}: cannot be written ({reason(error)})") from error


def latest(
    directory: str | Path,
    warn: Callable[[str], None] | None = None,
    run: Mapping[str, Any] | None = None,
) -> Checkpoint | None:
    """The newest checkpoint that is intact, or None if there never was one.

    A damaged one is set aside as `*.damaged`, `warn` is told, and the one before it is taken. With
    `run`, a checkpoint that was saved under other settings is an error that names them; only the number of
    epochs may be larger.
    """
    damaged = []
    for step in reversed(steps(directory)):
        path = path_of(directory, step)
        try:
            found = load(path)
        except CheckpointError as error:
            damaged.append(path.name)
            if warn is not None:
                warn(f"{error}; going back to the one before")
            set_aside(path)
            continue
        if run is not None:
            _same_run(found, run)
        return found
    if damaged:
        raise CheckpointError(
            f"{directory}: no checkpoint is whole ({', '.join(reversed(damaged))}); "
            "start the run again in a new directory"
        )
    return None


def load(path: str | Path) -> Checkpoint:
    """Read one checkpoint and verify its checksum."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: the checkpoint cannot be read ({error.strerror})") from error
    try:
        tensors = safetensors.torch.load(data)
        metadata = from_json(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
        about = metadata["cutlayer"]
        if metadata["sha256"] != _digest(about, tensors):
            raise CheckpointError(f"{path}: the checkpoint is damaged: its checksum is wrong")
        content = from_json(about)
        return Checkpoint(content["step"], tensors, content["state"], path, content["run"])
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path}: the checkpoint is damaged ({error})") from error


def steps(directory: str | Path) -> list[int]:
    """The steps of which there are checkpoints, damaged or not, oldest first."""
    try:
        names = [entry.name for entry in Path(directory).iterdir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"{directory}: checkpoints cannot be read ({error.strerror})") from error
    return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))


def keep(directory: str | Path, last: int, best: int | None = None) -> None:
    """Remove all checkpoints but the last few and the best, and what killed processes left behind."""
    present = steps(directory)
    kept = {*present[-max(1, last) :], best}
    for step in present:
        if step not in kept:
            path_of(directory, step).unlink(missing_ok=True)
    remove_partial_files(directory)


def path_of(directory: str | Path, step: int) -> Path:
    """The file of a step's checkpoint."""
    return Path(directory) / f"step-{step:09d}.safetensors"


def _digest(about: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(about.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def set_aside(path: Path) -> None:
    """Take a checkpoint that cannot be used out of the row, and keep it as `*.damaged`."""
    # Left under its name it would count among the last few that are kept. A directory that can only
    # be read needs no such care.
    try:
        path.replace(path.with_name(f"{path.name}.damaged"))
    except OSError:
        return


def _same_run(found: Checkpoint, run: Mapping[str, Any]) -> None:
    # Through JSON, so that tuples and lists compare equal.
    before, now = _flat(found.run), _flat(json.loads(json.dumps(run)))
    changed = [
        f"{key} was {before.get(key, 'not set')!r}, is {now.get(key, 'not set')!r}"
        for key in sorted({*before, *now})
        if (key in before, before.get(key)) != (key in now, now.get(key))
        and not (key == _LENGTH and key in before and now.get(key, 0) > before[key])
    ]
    if changed:
        raise CheckpointError(
            f"{found.path}: this is the checkpoint of another run: {'; '.join(changed)}. Resume with the "
            "settings that the run was started with, or start a new one in another directory"
        )


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            result |= _flat(value, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = value
    return result
