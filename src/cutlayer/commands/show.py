"""Output for people: a console, tables, and numbers with units."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from cutlayer.units import count, duration, size

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["console", "count", "duration", "print_json", "print_line", "size", "table"]


def console(stderr: bool = False) -> Console:
    """A console on the present standard output. Into a file or pipe it never wraps tables."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, highlight=False, width=None if stream.isatty() else 160, soft_wrap=False)


def table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[Any]], text: int = 1) -> Table:
    """A table whose first `text` columns are words and whose others are numbers."""
    from rich import box
    from rich.table import Table

    made = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        made.add_column(column, justify="left" if number < text else "right", no_wrap=number >= text)
    for row in rows:
        made.add_row(*(str(cell) for cell in row))
    return made


def print_json(value: Any) -> None:
    """One JSON document on standard output, for programs."""
    from cutlayer.training.records import to_json

    sys.stdout.write(json.dumps(json.loads(to_json(value)), indent=2) + "\n")


def print_line(value: Any) -> None:
    """One line of JSON on standard output, after others."""
    from cutlayer.training.records import to_json

    sys.stdout.write(to_json(value) + "\n")
