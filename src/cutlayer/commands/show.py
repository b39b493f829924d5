"""Output for people and for programs: messages, tables, and JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from cutlayer.units import count, duration, size

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["console", "count", "duration", "print_json", "print_line", "say", "size", "table"]

# Into a file or pipe: wide enough for every table.
_FILE_WIDTH = 160


def console(stderr: bool = False) -> Console:
    """A console on the present standard output, or standard error."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _FILE_WIDTH
    return Console(file=stream, highlight=False, emoji=False, width=width)


def say(text: str, *, stderr: bool = False, style: str | None = None) -> None:
    """Print a message as it is: wrapped between words on a terminal, and never in a file or pipe."""
    stream = sys.stderr if stderr else sys.stdout
    if not stream.isatty():  # without rich, which a small device need not load
        stream.write(f"{text}\n")
        stream.flush()
        return
    console(stderr).print(text, style=style, markup=False)


def table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[Any]], text: int = 1) -> Table:
    """A table whose first `text` columns are words and whose others are numbers.

    Where the terminal is too narrow, the headers of numbers are broken between words, and words anywhere.
    Numbers are never cut.
    """
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    cells = [[str(cell) for cell in row] for row in rows]
    longest = [max((len(row[n]) for row in cells), default=0) for n in range(len(columns))]
    natural = sum(max(len(name), width) for name, width in zip(columns, longest, strict=True))
    screen = console()
    narrow = screen.is_terminal and natural + 3 * len(columns) + 1 > screen.width
    made = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=0 if narrow else (0, 1),
    )
    for number, name in enumerate(columns):
        if number < text:
            made.add_column(name, overflow="fold")
        elif narrow:
            made.add_column(name, justify="right", width=max(longest[number], *map(len, name.split())))
        else:
            made.add_column(name, justify="right", no_wrap=True)
    for row in cells:
        # Brackets are text, in a name of a run as in pip install 'cutlayer[train]'.
        made.add_row(*map(escape, row))
    return made


def print_json(value: Any) -> None:
    """One JSON document on standard output, for programs."""
    from cutlayer.plain_json import to_json

    sys.stdout.write(json.dumps(json.loads(to_json(value)), indent=2) + "\n")


def print_line(value: Any) -> None:
    """One line of JSON on standard output, after others."""
    from cutlayer.plain_json import to_json

    sys.stdout.write(to_json(value) + "\n")
