"""Runs as model repositories: a folder with a model card that Hugging Face hubs take, and back to a run.

A repository is a folder here, or `user/name` on the hub. It holds the exported model and its two halves, what
`eval` and `serve-inference` need of the run, and a card. Data are part of neither run nor repository.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutlayer.data.spec import DataSpec
from cutlayer.errors import CheckpointError, DataError, FileError, UnreachableError
from cutlayer.files import write_atomically
from cutlayer.imports import is_import_name, need
from cutlayer.inference.export import export
from cutlayer.integrations.model_card import model_card
from cutlayer.models import AllowedModels
from cutlayer.protocol.admission import problem
from cutlayer.report.run_summary import summarize
from cutlayer.tasks import AllowedTasks
from cutlayer.training import checkpoint
from cutlayer.training.load_run import open_run, settings

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_FILES = {
    "model.safetensors": "the whole model",
    "client.safetensors": "the clients' half",
    "server.safetensors": "the server's half",
    "config.toml": "all settings of the run",
    "data.json": "shape, classes and normalization of the data",
    "records.jsonl": "losses, metrics and bytes, step by step",
    "provenance.json": "versions and hardware",
    "checkpoints": "the last checkpoint, from which training can go on",
}
#: What a run must have to be used again.
_RUN = ("config.toml", "data.json", "records.jsonl")
# Bytes of a file that is read whole.
_MOST_BYTES = 1 << 24


@dataclass(frozen=True)
class Allowed:
    """Code by name that the user of a pulled run allows to be imported; built-in code need not be."""

    models: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    data: tuple[str, ...] = ()


def is_hub_name(repository: str) -> bool:
    """Whether `user/name` on the hub is meant, and not a folder here."""
    return _HUB_NAME.fullmatch(repository) is not None and not Path(repository).exists()


def write_repository(run: Path, folder: Path) -> list[Path]:
    """Write a run as a model repository into a folder that is empty or not there yet."""
    if folder.exists() and any(folder.iterdir()):
        raise FileError(f"{folder}: is not empty; choose another folder, or empty it")
    trained = open_run(run)
    last = checkpoint.latest(run / "checkpoints")
    if last is None:
        raise CheckpointError(f"{run}: the run has no checkpoint yet")
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("whole", "client", "server"):
        name = "model" if part == "whole" else part
        export(trained, folder / f"{name}.safetensors", part)
    (folder / "checkpoints").mkdir()
    shutil.copyfile(last.path, folder / "checkpoints" / last.path.name)
    for name in (*_RUN, "provenance.json"):
        if (run / name).exists():
            shutil.copyfile(run / name, folder / name)
    card = model_card(run.resolve().name, trained.config, trained.data_spec, summarize(run), _FILES)
    write_atomically(folder / "README.md", card)
    return sorted(path for path in folder.rglob("*") if path.is_file())


def read_repository(folder: Path, run: Path, allowed: Allowed | None = None) -> Path:
    """Make a run of a repository's folder. What is wrong with it shows here, and leaves nothing behind."""
    missing = [name for name in _RUN if not _own_file(folder / name)]
    if missing:
        raise FileError(f"{folder}: is no repository of cutlayer: it has no {missing[0]}")
    if run.exists():
        raise FileError(f"{run} exists; choose another folder for the run")
    wanted = [folder / name for name in (*_RUN, "provenance.json")]
    if not (folder / "checkpoints").is_symlink():
        wanted += sorted((folder / "checkpoints").glob("step-*.safetensors"))
    run.mkdir(parents=True)
    try:
        for path in filter(_own_file, wanted):
            if path.suffix in (".toml", ".json") and path.stat().st_size > _MOST_BYTES:
                raise FileError(f"{path}: is larger than such a file can be")
            target = run / path.relative_to(folder)
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, target)
        _check(run, allowed or Allowed())
    except BaseException:
        shutil.rmtree(run, ignore_errors=True)
        raise
    return run


def _own_file(path: Path) -> bool:
    """Whether it is a file, and no link: a repository could point to any file here."""
    return path.is_file() and not path.is_symlink()


def _check(run: Path, allowed: Allowed) -> None:
    """Raise unless a run of somebody else's is whole, and names no code that its user did not allow.

    From here on it is this user's own, and what its settings name is imported.
    """
    config = settings(run)
    if ":" in config.model.name:
        AllowedModels.of(allowed.models).find(config.model.name)
    if ":" in config.task.name:
        AllowedTasks.of(allowed.tasks).find(config.task.name)
    source = config.data.source
    if is_import_name(source) and source not in allowed.data:
        raise DataError(
            f"the data of this run come from the function {source!r}, and nothing was imported: its name "
            f"comes from somebody else. If you know and trust it, allow it with --allow-data {source}"
        )
    wrong = problem(DataSpec.read(run))
    if wrong is not None:
        raise FileError(f"{run / 'data.json'}: describes data that cannot be: {wrong}")
    # Its checksum is verified here, and not at its first use.
    checkpoint.latest(run / "checkpoints")


def push(run: Path, repository: str, *, private: bool = False) -> str:
    """Write a run to a folder, or upload it to the hub; where it is then."""
    if not is_hub_name(repository):
        write_repository(run, Path(repository))
        return repository
    hub = need("huggingface_hub", "the hub", "hub")
    with tempfile.TemporaryDirectory() as place:
        write_repository(run, Path(place, "repository"))
        return str(_reached(repository, lambda: _upload(hub, Path(place, "repository"), repository, private)))


def pull(repository: str, run: Path, allowed: Allowed | None = None) -> Path:
    """Make a run of a repository in a folder, or on the hub."""
    if not is_hub_name(repository):
        return read_repository(Path(repository), run, allowed)
    hub = need("huggingface_hub", "the hub", "hub")
    with tempfile.TemporaryDirectory() as place:
        _reached(repository, lambda: hub.snapshot_download(repository, local_dir=place))
        return read_repository(Path(place), run, allowed)


def _upload(hub: Any, folder: Path, repository: str, private: bool) -> str:
    hub.create_repo(repository, private=private, exist_ok=True)
    hub.upload_folder(repo_id=repository, folder_path=folder)
    return f"https://huggingface.co/{repository}"


def _reached(repository: str, call: Any) -> Any:
    """What a call to the hub gives. Whatever goes wrong there is one error, with the hub's own words."""
    try:
        return call()
    except Exception as error:
        raise UnreachableError(
            f"{repository}: the hub cannot be used ({type(error).__name__}: {str(error)[:300]}); log in with "
            "`hf auth login`, or give a folder, as ./my-repository"
        ) from error
