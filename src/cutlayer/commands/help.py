"""Help that reads well at 80 columns: examples line by line, flags without a type, no names of Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class ReadableCommand(TyperCommand):
    """A command whose help has one blank line between paragraphs, and no `<bool>` behind a flag."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        # `\b` keeps lines as they are; it is not to be printed.
        self.help = (self.help or "").replace("\b\n", "")

    def get_params(self, ctx: Any) -> list[Any]:
        """All options and arguments."""
        return [_name_value(parameter) for parameter in super().get_params(ctx)]


class ReadableGroup(TyperGroup):
    """A group of commands, with flags as above."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All options."""
        return [_name_value(parameter) for parameter in super().get_params(ctx)]


class Program(typer.Typer):
    """A Typer application of such commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=ReadableGroup, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """See `typer.Typer.command`."""
        settings.setdefault("cls", ReadableCommand)
        return super().command(name, **settings)


def _name_value(parameter: Any) -> Any:
    """Say what an option takes in a word: nothing for a flag, N for a number with bounds."""
    written = getattr(parameter, "bare_type", str)()
    if parameter.param_type_name == "argument" and written.startswith("list["):
        # Newer releases of Typer would print `<list[Path]>`; the usage says already that it repeats.
        parameter.bare_type = lambda: written.removeprefix("list[").removesuffix("]").lower()
    if getattr(parameter, "is_flag", False) and parameter.metavar is None:
        parameter.metavar = ""
    elif getattr(parameter, "min", None) is not None and parameter.metavar is None:
        parameter.metavar = "N"
    return parameter
