"""The formats of a report: an HTML page, Markdown, CSV, or the plots of one kind as an SVG file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from cutlayer.errors import ConfigError
from cutlayer.files import write_atomically
from cutlayer.report.page import page
from cutlayer.report.svg import draw
from cutlayer.reproduce.results import Result, to_csv

#: What is written where, if the user does not say.
FORMATS = {"html": "report.html", "markdown": "report.md", "csv": "report-csv", "svg": "report.svg"}


def write_report(results: Sequence[Result], form: str, out: Path, plots: str = "bytes") -> list[Path]:
    """Write a report in one of the formats; return its files."""
    if form == "html":
        return [_put(out, page(results))]
    if form == "markdown":
        return [_put(out, "\n".join(result.markdown() for result in results))]
    if form == "svg":
        return [_put(out, _picture(results, plots) + "\n")]
    return [
        _put(out / f"{_name(result.name)}-{_name(table.id)}.csv", to_csv(table))
        for result in results
        for table in result.tables
    ]


def _picture(results: Sequence[Result], prefix: str) -> str:
    """All plots of a kind, side by side, with one legend: `bytes` is accuracy against bytes."""
    for result in results:
        chosen = [plot for plot in result.plots if re.fullmatch(rf"{re.escape(prefix)}(-.*)?", plot.id)]
        if chosen:
            # Side by side, what they share is told once, and what differs is short.
            return draw(chosen, alone=True, width=520 if len(chosen) == 1 else 340)
    known = sorted({plot.id for result in results for plot in result.plots})
    raise ConfigError(f"there is no plot {prefix!r}; there are: {', '.join(known) or 'none'}")


def _name(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text).strip(".-") or "table"


def _put(path: Path, text: str) -> Path:
    write_atomically(path, text, parents=True)
    return path
