"""Groups of command-line options that several commands share, as dataclasses.

A command takes a group as one parameter, and Typer sees the group's fields in its place:

>>> @dataclass(frozen=True)
... class Output:
...     quiet: Annotated[bool, typer.Option("--quiet")] = False
>>> @with_groups
... def train(output: Output, seed: int = 0) -> None: ...
"""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter that is a dataclass by its fields, in their order."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, tuple[type, list[str]]] = {}
    shown: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if not (isinstance(kind, type) and is_dataclass(kind)):
            shown.append(parameter.replace(annotation=kind, kind=_KEYWORD))
            continue
        types = get_type_hints(kind, include_extras=True)
        members = fields(kind)
        groups[name] = kind, [field.name for field in members]
        shown += [
            inspect.Parameter(field.name, _KEYWORD, default=_default(field), annotation=types[field.name])
            for field in members
        ]

    @wraps(command)
    def run(**given: Any) -> None:
        for name, (kind, members) in groups.items():
            given[name] = kind(**{member: given.pop(member) for member in members})
        command(**given)

    # Duplicate names, within one command, are an error here.
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run


def _default(field: Field[Any]) -> Any:
    return inspect.Parameter.empty if field.default is MISSING else field.default
