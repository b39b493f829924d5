"""Settings as TOML: read from a file, overridden from the command line, and written."""

import copy
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from cutlayer.errors import ConfigError
from cutlayer.files import reason


def read_toml(path: str | Path) -> dict[str, Any]:
    """The settings in a file."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({reason(error)})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error


def to_toml(settings: Mapping[str, Any]) -> str:
    """Plain settings as TOML. None is left out, which is how TOML says it."""
    return tomli_w.dumps(_without_none(settings))


def overridden(settings: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the settings with other values, each under its path: `{"train.epochs": 5}`."""
    result: dict[str, Any] = copy.deepcopy(dict(settings))
    for key, value in values.items():
        *sections, name = key.split(".")
        place = result
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise ConfigError(f"{key}: {section!r} is a value, not a section")
        place[name] = value
    return result


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """`section.name=value` as path and value. What is no TOML value is taken for a string."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, raw = text.partition("=")
        key = key.strip()
        if not equals or not all(key.split(".")):
            raise ConfigError(f"{text!r} is not of the form section.name=value")
        # Later ones win, also over their own sections.
        found.pop(key, None)
        found[key] = _value(raw.strip())
    return found


def _value(raw: str) -> Any:
    try:
        return tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return raw


def _without_none(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in settings.items()
        if value is not None
    }
