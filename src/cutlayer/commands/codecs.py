"""`cutlayer codecs`: what there is to choose from."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from cutlayer.codecs import codec_class, names
from cutlayer.codecs.fields import parameters


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(codecs)


def codecs(
    name: Annotated[str | None, typer.Argument(help="Show only this codec.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """List the codecs, their parameters and when to use them.

    A codec is named by a spec string: its name, then any parameters that differ from the defaults, as in
    `ms:ratio=0.99,bits=2` or `sp:ratio=0.9,values=float16`.

    Examples:  cutlayer codecs   |   cutlayer codecs ms   |   cutlayer codecs --json
    """
    chosen = [codec_class(n) for n in ([name] if name else names())]
    if as_json:
        rows = [
            {
                "name": cls.name,
                "advice": cls.advice,
                "parameters": {
                    key: {"default": f.default, "allowed": p.describe(), "help": p.help}
                    for key, (f, p) in parameters(cls).items()
                },
            }
            for cls in chosen
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    console = Console()
    for cls in chosen:
        table = Table(
            title=f"[bold]{cls.name}[/]  {cls.advice}", title_justify="left", box=None, padding=(0, 2)
        )
        for column in ("parameter", "default", "allowed", "meaning"):
            table.add_column(column, no_wrap=column in ("parameter", "default"))
        for key, (f, p) in parameters(cls).items():
            table.add_row(key, str(f.default), p.describe(), p.help)
        console.print(table)
        console.print()
