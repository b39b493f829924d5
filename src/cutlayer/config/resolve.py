"""From file, recipe and flags to one configuration, and to a directory that is free for it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cutlayer.config import recipes
from cutlayer.config.schema import Config, from_mapping
from cutlayer.config.text import parse_overrides
from cutlayer.errors import ConfigError, FileError

DEFAULT_DIRECTORY = Path("runs")


def settle(
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
        settings, where = _read(file), str(file)
    elif recipe is not None:
        settings, where = recipes.recipe(recipe), recipe
    elif resume:
        directory = Path(flags.get("output.dir") or "")
        if "output.dir" not in flags or not (directory / "config.toml").is_file():
            raise ConfigError("--resume needs --out with the directory of a run that was begun")
        settings, where = _read(directory / "config.toml"), str(directory / "config.toml")
    for key, value in flags.items():
        _put(settings, key, value)
    settings = parse_overrides(settings, overrides)
    if "dir" not in settings.get("output", {}):
        if resume:
            raise ConfigError("--resume needs --out with the directory of a run that was begun")
        config = from_mapping(settings, where)
        name = recipe.replace("/", "-") if recipe else file.stem if file else _name(config)
        _put(settings, "output.dir", str(_unused(DEFAULT_DIRECTORY / name)))
    return from_mapping(settings, where)


def free_directory(config: Config, resume: bool) -> None:
    """Refuse a directory that holds another run, before any data are loaded."""
    directory = Path(config.output.dir)
    if not resume and (directory / "records.jsonl").exists():
        raise FileError(
            f"{directory}: there is a run already. Continue it with --resume, or give another --out"
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error


def _put(settings: dict[str, Any], key: str, value: Any) -> None:
    *sections, name = key.split(".")
    for section in sections:
        settings = settings.setdefault(section, {})
        if not isinstance(settings, dict):
            raise ConfigError(f"{section} is a section of settings, but the file gives it one value")
    settings[name] = value


def _name(config: Config) -> str:
    source = Path(config.data.source).name.replace(":", "-")
    model = config.model.name.replace(":", "-")
    return f"{model}-{source}-{config.codec.up.partition(':')[0]}"


def _unused(path: Path) -> Path:
    """The path, or with the first number behind it that is free: a run never overwrites another."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free
