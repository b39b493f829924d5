"""`cutlayer new`: a folder to begin from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cutlayer.commands import show


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("new")(new)


def new(
    folder: Annotated[Path, typer.Argument(help="the folder to make", metavar="DIR")],
) -> None:
    """Make a folder with a configuration, a model and data to begin from.

    The files are commented, and train as they are. No file is replaced.

    \b
    Example:
      cutlayer new my-project
    """
    from cutlayer.tools.new_project import new_project

    for path in new_project(folder):
        show.say(f"wrote {path}")
    show.say(f"Next: cd {folder} && PYTHONPATH=. cutlayer train my.toml")
