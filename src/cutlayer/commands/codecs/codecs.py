"""`cutlayer codecs`: the codecs and their parameters."""

from typing import Annotated, Any

import typer

from cutlayer.commands import show
from cutlayer.commands.options import AsJson
from cutlayer.errors import CutlayerError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(codecs)


def codecs(
    name: Annotated[str | None, typer.Argument(help="show only this codec", metavar="NAME")] = None,
    as_json: AsJson = False,
) -> None:
    """List the codecs, their parameters and when to use them.

    A codec is written as its name, then any parameters that differ from the
    defaults: `ms:ratio=0.99,bits=2` or `sp:ratio=0.9,values=float16`.

    \b
    Examples:
      cutlayer codecs
      cutlayer codecs ms --json
    """
    from cutlayer.codecs import codec_class, names
    from cutlayer.codecs.fields import parameters

    chosen = [codec_class(n) for n in ([name] if name else names())]
    if as_json:
        rows = [
            {
                "name": cls.name,
                "advice": cls.advice,
                "parameters": {
                    key: {"default": _used(cls, key, f.default), "allowed": p.describe(), "help": p.help}
                    for key, (f, p) in parameters(cls).items()
                },
            }
            for cls in chosen
        ]
        show.print_json(rows)
        return
    for cls in chosen:
        cells = [
            [key, _used(cls, key, f.default), p.describe(), p.help] for key, (f, p) in parameters(cls).items()
        ]
        columns = ["parameter", "default", "allowed", "meaning"]
        show.console().print(show.table(f"{cls.name}: {cls.advice}", columns, cells, text=4))


def _used(cls: Any, key: str, declared: Any) -> Any:
    """The value that a codec without parameters has: `ems` alone is `ems:bpe=1.0`, whatever is declared."""
    try:
        return getattr(cls(), key)
    except (CutlayerError, TypeError):  # one of another package that cannot do without parameters
        return declared
