"""Output for people: a console, tables, and numbers with units."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from cutlayer.run.records import to_json


def console(stderr: bool = False) -> Console:
    """A console on the present standard output. Into a file or pipe it never wraps tables."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, highlight=False, width=None if stream.isatty() else 160, soft_wrap=False)


def table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[Any]], text: int = 1) -> Table:
    """A table whose first `text` columns are words and whose others are numbers."""
    made = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        made.add_column(column, justify="left" if number < text else "right", no_wrap=number >= text)
    for row in rows:
        made.add_row(*(str(cell) for cell in row))
    return made


def print_json(value: Any) -> None:
    """One JSON document on standard output, for programs."""
    sys.stdout.write(json.dumps(json.loads(to_json(value)), indent=2) + "\n")


def size(nbytes: float) -> str:
    """Bytes as people say them: 12.3 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(nbytes) < 999.5:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.4g} TB"


def count(number: float) -> str:
    """A large number as people say it: 11.2 M."""
    for unit in ("", " k", " M"):
        if abs(number) < 999.5:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.4g} G"


def duration(seconds: float) -> str:
    """Seconds as people say them: 1:02:03, 2:03, or 4.5 s."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
