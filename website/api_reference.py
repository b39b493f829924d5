"""Pages on the public names and the settings, made from docstrings. A public name without one is an error."""

import ast
import inspect
import typing
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import cutlayer
from cutlayer.config import schema

GROUPS = {
    "Train": ["train", "Result", "Event", "Config", "load_run", "Run"],
    "Between machines": ["serve", "join", "connect", "Remote", "RemoteServer", "RemoteStep", "RemoteModel"],
    "Codecs": ["codec", "decode", "inspect", "FrameInfo", "Codec", "register"],
    "Models in parts": ["cut", "cut_points", "CutLayer"],
    "Errors": ["CutlayerError"],
}


def undocumented(names: dict[str, Any]) -> list[str]:
    """Public names, and public members that their classes define themselves, that have no docstring."""
    missing = []
    for name, value in names.items():
        if not (value.__doc__ or "").strip():
            missing.append(name)
        for member, defined in vars(value).items() if inspect.isclass(value) else ():
            called = inspect.unwrap(getattr(defined, "__func__", getattr(defined, "fget", None) or defined))
            is_method = inspect.isfunction(called) and member not in getattr(
                value, "__dataclass_fields__", ()
            )
            if is_method and not member.startswith("_") and not called.__doc__:
                missing.append(f"{name}.{member}")
    return missing


def python_page() -> str:
    """One heading and one mkdocstrings directive a name."""
    names = {name: getattr(cutlayer, name) for name in cutlayer.__all__}
    if missing := undocumented(names):
        raise SystemExit(f"public names without a docstring: {', '.join(missing)}")
    grouped = {name for group in GROUPS.values() for name in group}
    if different := grouped ^ set(names):
        raise SystemExit(f"website/api_reference.py and cutlayer.__all__ differ: {', '.join(different)}")
    lines = [
        "# Python",
        "",
        "Every name that `import cutlayer` offers. PyTorch and gRPC are imported when a name that needs them",
        "is used for the first time. [The Python interface](../how-to/python.md) shows their use.",
    ]
    for title, group in GROUPS.items():
        lines += ["", f"## {title}"]
        for name in group:
            value = names[name]
            lines += ["", f"::: {value.__module__}.{value.__qualname__}", "    options:"]
            lines += [f"      heading: cutlayer.{name}", "      heading_level: 3"]
    return "\n".join(lines) + "\n"


def sections(config: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """The sections of a configuration by name."""
    found = {}
    for name, field in config.model_fields.items():
        if inspect.isclass(field.annotation) and issubclass(field.annotation, BaseModel):
            found[name] = field.annotation
    return found


def type_name(annotation: Any) -> str:
    """A type as people write it: a choice by its values, a number by its kind."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return type_name(arguments[0])
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (tuple, list, dict):
        return f"{origin.__name__} of {' and '.join(dict.fromkeys(map(type_name, arguments)))}".replace(
            " and ellipsis", ""
        )
    if arguments:
        return " or ".join(dict.fromkeys(type_name(found) for found in arguments if found is not type(None)))
    names = {int: "integer", float: "number", str: "text", bool: "`true` or `false`"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


def settings_page() -> str:
    """All settings of a run, section by section, with type, default and meaning."""
    lines = [
        "# Settings",
        "",
        "All settings of a run. They stand in a TOML file under these section names, or on the command line",
        "as `--set section.name=value`. `cutlayer recipes demo/digits-ms > my.toml` writes a complete file",
        "to start from.",
        "[Training](../how-to/training.md#settings) tells what they do together.",
        "",
    ]
    lines += ["| setting at the top | type | default |", "|---|---|---|"]
    parts = sections(schema.Config)
    for name, field in schema.Config.model_fields.items():
        if name not in parts:
            lines.append(f"| `{name}` | {type_name(field.annotation)} | `{field.default}` |")
    for name, section in parts.items():
        lines += ["", f"## `[{name}]`", "", (section.__doc__ or "").strip(), ""]
        lines += ["| setting | type | default | meaning |", "|---|---|---|---|"]
        meanings = _field_docstrings(section)
        for setting, field in section.model_fields.items():
            default = (
                ""
                if field.default is None or field.is_required()
                else f"`{field.get_default(call_default_factory=True)}`"
            )
            if setting not in meanings:
                raise SystemExit(f"the setting {name}.{setting} has no docstring behind it")
            meaning = meanings[setting].replace("|", "\\|")
            lines.append(f"| `{setting}` | {type_name(field.annotation)} | {default} | {meaning} |")
    return "\n".join(lines) + "\n"


def _field_docstrings(section: type[BaseModel]) -> dict[str, str]:
    """The strings behind the fields of a class, which Python throws away."""
    source = Path(inspect.getsourcefile(section) or "").read_text("utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name == section.__name__:
            found = {}
            for field, behind in zip(node.body, node.body[1:], strict=False):
                if not (isinstance(field, ast.AnnAssign) and isinstance(behind, ast.Expr)):
                    continue
                if isinstance(field.target, ast.Name) and isinstance(behind.value, ast.Constant):
                    found[field.target.id] = " ".join(str(behind.value.value).split())
            return found
    return {}
