"""Configuration as text: overrides from the command line, errors for people, TOML output."""

import copy
import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from cutlayer.errors import ConfigError


def parse_overrides(settings: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Settings with `a.b=c` applied. c is read as in TOML; what is no TOML value is taken for a string."""
    result: dict[str, Any] = copy.deepcopy(dict(settings))
    for text in overrides:
        key, equals, raw = text.partition("=")
        path = key.strip().split(".")
        if not equals or not all(path):
            raise ConfigError(f"{text!r} is not of the form section.name=value")
        place = result
        for name in path[:-1]:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise ConfigError(f"{text!r}: {name!r} is a value, not a section")
        place[path[-1]] = _value(raw.strip())
    return result


def _value(raw: str) -> Any:
    try:
        return tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return raw


def explain(error: ValidationError, config: type[BaseModel], where: str) -> str:
    """One line a problem, with the nearest spelling for keys that do not exist."""
    lines = []
    for problem in error.errors():
        path = [str(part) for part in problem["loc"]]
        if problem["type"] == "extra_forbidden":
            known = _names(config, path[:-1])
            near = difflib.get_close_matches(path[-1], known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
            lines.append(f"{'.'.join(path)}: no such setting; {hint}")
            continue
        # A union names the alternative that it tried: noise to a reader.
        place = ".".join(path[: _depth(config, path)])
        message = problem["msg"].removeprefix("Value error, ")
        message = message.removeprefix("Input should be ")
        expected = "" if problem["type"] == "value_error" else "expected "
        given = "" if problem["type"] == "value_error" else f", not {problem['input']!r}"
        lines.append(f"{place}: {expected}{message}{given}" if place else message)
    # The alternatives of a union give several lines for one setting.
    merged: dict[str, str] = {}
    for line in lines:
        place, _, rest = line.partition(": ")
        if place in merged and ", not " in rest and ", not " in merged[place]:
            merged[place] = f"{merged[place].rpartition(', not ')[0]}, or {rest.removeprefix('expected ')}"
        else:
            merged[place] = rest
    return "\n".join(f"{where}: {place}: {rest}" for place, rest in merged.items())


def _section(config: type[BaseModel], path: list[str]) -> type[BaseModel] | None:
    section: type[BaseModel] = config
    for name in path:
        field = section.model_fields.get(name)
        kind = field.annotation if field else None
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            return None
        section = kind
    return section


def _names(config: type[BaseModel], path: list[str]) -> list[str]:
    section = _section(config, path)
    return list(section.model_fields) if section else []


def _depth(config: type[BaseModel], path: list[str]) -> int:
    """How much of an error's place is sections and the setting's name."""
    depth = 0
    while depth < len(path) and path[depth] in _names(config, path[:depth]):
        depth += 1
    return depth


def to_toml(settings: Mapping[str, Any]) -> str:
    """Plain settings as TOML. None is left out, which is how TOML says it."""
    lines = [
        f"{key} = {_toml(v)}" for key, v in settings.items() if not isinstance(v, dict) and v is not None
    ]
    for key, section in settings.items():
        if isinstance(section, dict):
            lines += ["", f"[{key}]"]
            lines += [f"{name} = {_toml(v)}" for name, v in section.items() if v is not None]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_toml(v) for v in value)}]"
    # JSON's numbers, booleans and escaped strings are TOML's, too.
    return json.dumps(value)
