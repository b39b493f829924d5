"""The configuration of a run from a file or recipe, flags and overrides, and its directory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cutlayer.config import recipes
from cutlayer.config.schema import Config, from_mapping
from cutlayer.config.toml import overridden, parse_overrides, read_toml
from cutlayer.errors import ConfigError, FileError

DEFAULT_DIRECTORY = Path("runs")


def resolve_config(
    file: Path | None, recipe: str | None, flags: Mapping[str, Any], overrides: Iterable[str], resume: bool
) -> Config:
    """The settings of a run: file or recipe, then flags (`section.name` to value), then overrides.

    Resuming without a file or recipe takes the settings that the run was started with.
    """
    if file is not None and recipe is not None:
        raise ConfigError("give a configuration file or a recipe, not both; --set overrides either")
    settings: dict[str, Any] = {}
    where = "settings"
    if file is not None:
        settings, where = read_toml(file), str(file)
    elif recipe is not None:
        settings, where = recipes.recipe(recipe), recipe
    elif resume:
        directory = Path(flags.get("output.dir") or "")
        if "output.dir" in flags and _has_records(directory) and not _has_settings(directory):
            raise FileError(_without_settings(directory))
        if "output.dir" not in flags or not _has_settings(directory):
            raise ConfigError("--resume needs --out with the directory of a run that was begun")
        settings, where = read_toml(directory / "config.toml"), str(directory / "config.toml")
    settings = overridden(overridden(settings, flags), parse_overrides(overrides))
    output = settings.get("output", {})
    if isinstance(output, dict) and "dir" not in output:
        if resume:
            raise ConfigError("--resume needs --out with the directory of a run that was begun")
        config = from_mapping(settings, where)
        name = recipe.replace("/", "-") if recipe else file.stem if file else _name(config)
        settings = overridden(settings, {"output.dir": str(_unused(DEFAULT_DIRECTORY / name))})
    return from_mapping(settings, where)


def refuse_existing_run(directory: str | Path, resume: bool) -> None:
    """Refuse a directory that holds a run already, unless that run is to be resumed.

    A run that ended before it wrote anything, settings or records, does not count.
    """
    if resume:
        return
    if _has_settings(directory):
        raise FileError(
            f"{directory}: there is a run already. Continue it with --resume, or give another --out (in "
            "Python resume=True and out=)"
        )
    if _has_records(directory):
        raise FileError(_without_settings(directory))


def _has_settings(directory: str | Path) -> bool:
    return Path(directory, "config.toml").is_file()


def _has_records(directory: str | Path) -> bool:
    records = Path(directory, "records.jsonl")
    return Path(directory, "checkpoints").is_dir() or (records.exists() and records.stat().st_size > 0)


def _without_settings(directory: str | Path) -> str:
    return (
        f"{directory}: there is a run whose settings, config.toml, are missing. Continue it with --resume "
        "and the file or recipe that it was started with, or give another --out"
    )


def _name(config: Config) -> str:
    source = Path(config.data.source).name.replace(":", "-")
    model = config.model.name.replace(":", "-")
    return f"{model}-{source}-{config.codec.up.partition(':')[0]}"


def _unused(path: Path) -> Path:
    """The path itself, or the first of `path-2`, `path-3`, ... that does not exist yet."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free
