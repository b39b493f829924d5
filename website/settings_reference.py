"""The page on the settings of a run, made from the schema. A setting that nobody explained is an error."""

import ast
import inspect
import typing
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from cutlayer.config import schema

# The schema explains what is not obvious to who reads the code. These are obvious there, but not on a page.
MEANINGS = {
    "model.name": "A built-in model, or your own as package.module:factory.",
    "model.width": "Channels of the first layer, or the width of a transformer.",
    "data.source": "A built-in data set, a path, or your own as package.module:function.",
    "data.root": "Where built-in data sets are looked for. Nothing is downloaded.",
    "data.size": "Images: the side to which they are scaled.",
    "data.cache_dir": "Images: where decoded ones are kept, for the next epoch and run.",
    "data.limit": "Train with so many samples of all.",
    "data.partition": "Who has which samples: even, contiguous, dirichlet:alpha=0.5, shard:shards=2.",
    "data.augment": "Images: auto, none, crop-flip, shift-flip, resized-crop-flip.",
    "train.epochs": "Passes over the training data.",
    "train.batch_size": "Samples of each client at a step.",
    "train.weighting": "What has equal weight in a mean: each client, or each sample.",
    "train.lr": "The learning rate from which the schedule starts.",
    "train.momentum": "Of sgd.",
    "train.weight_decay": "L2 penalty of sgd; decoupled in adamw.",
    "train.nesterov": "Whether the momentum of sgd is Nesterov's.",
    "train.gamma": "schedule = steps and every: the factor.",
    "train.drop_last": "Leave out the last batch of an epoch where it is smaller than the others.",
    "train.evaluate_batch": "Test samples in a message.",
    "output.dir": "The run's directory.",
    "output.tensorboard": "Write curves for TensorBoard, too.",
}


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


def page() -> str:
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
        meanings = field_docstrings(section)
        for setting, field in section.model_fields.items():
            default = (
                ""
                if field.default is None or field.is_required()
                else f"`{field.get_default(call_default_factory=True)}`"
            )
            explained = meanings.get(setting) or MEANINGS.get(f"{name}.{setting}")
            if explained is None:
                raise SystemExit(
                    f"the setting {name}.{setting} has no docstring behind it in config/sections.py"
                )
            meaning = explained.replace("|", "\\|")
            lines.append(f"| `{setting}` | {type_name(field.annotation)} | {default} | {meaning} |")
    return "\n".join(lines) + "\n"


def field_docstrings(section: type[BaseModel]) -> dict[str, str]:
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
