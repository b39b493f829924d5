"""`cutlayer recipes`: list the named recipes, or show one as a configuration file."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cutlayer.commands import show
from cutlayer.commands.options import AsJson
from cutlayer.config import recipes as known
from cutlayer.errors import ConfigError
from cutlayer.imports import need


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("recipes")(recipes)


def recipes(
    name: Annotated[
        str,
        typer.Argument(
            help="a recipe to show, or a pattern such as 'paper/*-medium-*' to list", metavar="NAME"
        ),
    ] = "*",
    as_json: AsJson = False,
) -> None:
    """List the named recipes, or show one as TOML.

    A recipe is the content of a configuration file: all settings of a run.

    \b
    Examples:
      cutlayer recipes
      cutlayer recipes 'paper/*-medium-ms'
      # To edit, and then: cutlayer train my.toml
      cutlayer recipes demo/digits-ms > my.toml
    """
    if not any(c in name for c in "*?["):
        _show(name, as_json)
        return
    found = known.names(name)
    if not found:
        raise ConfigError(f"no recipe matches {name!r}; `cutlayer recipes` lists all of them")
    if as_json:
        show.print_json({each: known.recipe(each) for each in found})
        return
    rows = []
    for each in found:
        settings = known.recipe(each)
        model, train = settings["model"], settings["train"]
        words = [each, model["name"], model["cut"], settings["data"]["source"], settings["codec"]["up"]]
        rows.append([*words, model["width"], train["clients"], train["epochs"]])
    columns = ["recipe", "model", "cut", "data", "codec up", "width", "clients", "epochs"]
    text = 5
    if show.too_wide(columns, rows):
        # A name is there to be copied, in one piece; it has model, data and cut in it.
        keep = [columns.index(column) for column in ("recipe", "codec up", "clients", "epochs")]
        columns, rows, text = [columns[n] for n in keep], [[row[n] for n in keep] for row in rows], 2
    show.console().print(show.table(None, columns, rows, text=text))


def _show(name: str, as_json: bool) -> None:
    settings = known.recipe(name)
    if as_json:
        show.print_json(settings)
        return
    need("pydantic", "checking a configuration")
    from cutlayer.config.schema import from_mapping

    sys.stdout.write(f"# cutlayer train --recipe {name}\n" + from_mapping(settings, name).to_toml())
