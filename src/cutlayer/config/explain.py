"""Validation errors of a configuration as lines that a person can act on."""

import difflib

from pydantic import BaseModel, ValidationError


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
    """How many leading parts of an error's location name sections and the setting."""
    depth = 0
    while depth < len(path) and path[depth] in _names(config, path[:depth]):
        depth += 1
    return depth
