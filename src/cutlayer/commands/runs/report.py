"""`cutlayer report`: runs and results as one page, as tables, or as a picture."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cutlayer.commands import show
from cutlayer.imports import need


class Format(StrEnum):
    """What to write."""

    HTML = "html"
    MARKDOWN = "markdown"
    CSV = "csv"
    SVG = "svg"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("report")(report)


def report(
    places: Annotated[
        list[Path],
        typer.Argument(help="folders of runs or of results, or folders of these", metavar="RUN_OR_RESULT"),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="file or folder; report.html, .md or .svg, or report-csv by default"),
    ] = None,
    form: Annotated[
        Format,
        typer.Option("--format", help="a page, tables as Markdown or CSV, or a picture"),
    ] = Format.HTML,
    plots: Annotated[str, typer.Option(help="svg: bytes, accuracy or loss", metavar="KIND")] = "bytes",
    as_json: Annotated[bool, typer.Option("--json", help="print the names of the files as JSON")] = False,
) -> None:
    """Write a report of runs, or of the results of `cutlayer reproduce`.

    The page has tables, plots with values under the pointer, claims, commands
    and provenance. It is one file that needs no network, in the light or dark
    colours of the reader's system. Runs that are still going are shown as far
    as they are.

    \b
    Examples:
      cutlayer report runs/dense runs/sp runs/ms
      cutlayer report experiments/results --out results.html
      cutlayer report experiments/results/traffic --format markdown
      cutlayer report runs/dense runs/ms --format svg --plots bytes
    """
    need("pydantic", "reading a run")
    from cutlayer.report.find_results import find_results
    from cutlayer.report.formats import FORMATS, write_report

    written = write_report(find_results(places), form, out or Path(FORMATS[form]), plots)
    if as_json:
        show.print_json({"files": [str(path) for path in written]})
        return
    for path in written:
        show.say(f"wrote {path} ({show.size(path.stat().st_size)})")
