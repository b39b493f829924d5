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

__all__ = ["console", "count", "duration", "print_json", "print_line", "say", "size", "table", "too_wide"]

# Into a file or pipe: wide enough for every table.
_FILE_WIDTH = 160
# How wide a table becomes at most for the sake of its title.
_TITLE = 60
# What a column of words is left with at least, where another one takes what it needs.
_FOLDED = 16


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


def too_wide(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> bool:
    """Whether a table is wider than the terminal. A file is wide enough for every table."""
    widths = [len(name) for name in columns]
    for row in rows:
        widths = [max(width, len(str(cell))) for width, cell in zip(widths, row, strict=True)]
    screen = console()
    return screen.is_terminal and sum(widths) + 3 * len(columns) + 1 > screen.width


def table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[Any]], text: int = 1) -> Table:
    """A table whose first `text` columns are words and whose others are numbers.

    Where the terminal is too narrow, the headers of numbers are broken between words, and words anywhere, but
    those of the first column, which are names to copy, only if there is no other way. Numbers are never cut.
    """
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    cells = [[str(cell) for cell in row] for row in rows]
    longest = [max((len(row[n]) for row in cells), default=0) for n in range(len(columns))]
    narrow = too_wide(columns, cells)
    # A title breaks where its table ends, so a long one gets some room behind a small table.
    room = min(console().width, len(title or ""), _TITLE)
    made = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        min_width=None if narrow else room,
        box=box.SIMPLE_HEAD,
        padding=0 if narrow else (0, 1),
    )
    least = [max([width, *map(len, name.split())]) for name, width in zip(columns, longest, strict=True)]
    rest = sum(least[text:]) + _FOLDED * (text - 1) + len(columns) + 1
    for number, name in enumerate(columns):
        if number == 0 and narrow and least[0] + rest <= console().width:
            made.add_column(name, width=least[0])
        elif number < text:
            made.add_column(name, overflow="fold")
        elif narrow:
            made.add_column(name, justify="right", width=least[number])
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
