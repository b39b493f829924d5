"""A task by its name: the table of built-in tasks, a user's own, or the one that data suggest."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Mapping
from typing import Any

from cutlayer.errors import TaskError
from cutlayer.tasks.allowed import AllowedTasks
from cutlayer.tasks.base import Target, Task
from cutlayer.tasks.classification import Classification
from cutlayer.tasks.language import Language
from cutlayer.tasks.multilabel import Multilabel
from cutlayer.tasks.regression import Regression
from cutlayer.tasks.segmentation import Segmentation

BuiltIn = type[Classification | Multilabel | Regression | Segmentation | Language]

#: Every built-in task by name.
TASKS: dict[str, BuiltIn] = {
    "classification": Classification,
    "multilabel": Multilabel,
    "regression": Regression,
    "segmentation": Segmentation,
    "language": Language,
}

#: Takes the task that the data suggest.
AUTO = "auto"

# What the data decide, and how the settings call a field.
_BY_DATA = {"classes", "labels", "shape", "vocabulary", "context"}
_CALLED = {"objective": "loss"}


def chosen(target: Target) -> str:
    """The name of the task that such targets suggest."""
    if target.kind == "floats":
        return "regression"
    if not target.shape:
        return "classification"
    if target.bits and len(target.shape) == 1:
        return "multilabel"
    return "language" if target.sequence and len(target.shape) == 1 else "segmentation"


def build(
    name: str,
    target: Target,
    options: Mapping[str, Any] | None = None,
    allowed: AllowedTasks | None = None,
) -> Task:
    """The task of that name for such targets, with its options.

    A user's own is a `Task`, or a class or function that makes one. It is called with those of target,
    classes and shape, and of the options, that it has parameters for.
    """
    options = dict(options or {})
    name = chosen(target) if name == AUTO else name
    if name in TASKS:
        known = _options(TASKS[name])
        for option in options:
            if option not in known:
                near = difflib.get_close_matches(option, known, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(known) or 'none'}"
                raise TaskError(f"task.{option}: {name} has no such option; {hint}")
        try:
            return TASKS[name].of(target, **options)
        except TypeError as error:
            raise TaskError(f"task: {name} cannot have these options ({error})") from error
    found = (allowed or AllowedTasks()).find(name)
    if found is None:
        near = difflib.get_close_matches(name, TASKS, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise TaskError(
            f"no task {name!r}.{hint} Built in are {', '.join(TASKS)}; your own is given as "
            "package.module:Task"
        )
    return own_task(name, found, target, options)


def own_task(name: str, found: Any, target: Target, options: Mapping[str, Any]) -> Task:
    """What a user gives for a task as one, or TaskError."""
    if not isinstance(found, Task) and callable(found):
        given = {"target": target, "classes": target.values, "shape": target.shape}
        try:
            found = found(**_accepted(found, given, options))
        except TaskError:
            raise
        except Exception as error:  # it is the user's code: anything can come
            raise TaskError(
                f"{name!r} could not make a task: {type(error).__name__}: {error}. It is called with those "
                f"of {', '.join(given)} that it has parameters for, and with the options in `task`"
            ) from error
    elif isinstance(found, Task) and options:
        raise TaskError(f"{name!r} is a task already, and takes no options: {', '.join(options)}")
    if not isinstance(found, Task):
        raise TaskError(
            f"{name!r} is a {type(found).__name__}; expected a cutlayer.tasks.Task, or what makes one"
        )
    return found


def _options(task: BuiltIn) -> list[str]:
    names = [field.name for field in dataclasses.fields(task)]
    return [_CALLED.get(name, name) for name in names if name not in _BY_DATA]


def _accepted(factory: Any, given: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(factory).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return {**given, **options}
    return {key: value for key, value in given.items() if key in parameters} | dict(options)
