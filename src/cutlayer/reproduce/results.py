"""The result of an experiment: claims, tables and plots with their provenance, in a folder.

`result.json` has everything; `tables.md` and one CSV a table have the tables for people and other programs.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from cutlayer.errors import FileError, RecordError
from cutlayer.files import write_atomically
from cutlayer.plain_json import to_json

NAME = "result.json"
Holds = Literal[True, False, "partly", "undecided"]
"""`partly`: in some cases and not in others. `undecided`: the interval allows both."""

VERDICTS: dict[Holds, str] = {
    True: "holds",
    False: "does not hold",
    "partly": "holds in part",
    "undecided": "undecided",
}


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, whether it holds here, and the evidence."""

    claim: str
    holds: Holds
    evidence: str


@dataclass(frozen=True)
class Table:
    """Rows of plain JSON values: numbers as numbers, None where there is none."""

    id: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Axis:
    """An axis of a plot."""

    label: str
    log: bool = False


@dataclass(frozen=True)
class Series:
    """One line, cloud or group of bars. `low` and `high` are the ends of confidence intervals."""

    name: str
    x: Sequence[Any]
    y: Sequence[float | None]
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None


@dataclass(frozen=True)
class Plot:
    """A plot, as data."""

    id: str
    title: str
    kind: Literal["line", "scatter", "bar"]
    x: Axis
    y: Axis
    series: Sequence[Series]


@dataclass(frozen=True)
class Findings:
    """The conclusions of an experiment."""

    title: str
    claims: Sequence[Claim] = ()
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()


@dataclass(frozen=True)
class Result:
    """Findings with their provenance."""

    name: str
    scale: str
    title: str
    claims: Sequence[Claim] = ()
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    commands: Sequence[str] = ()
    provenance: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; what is not finite becomes null."""
        plain: dict[str, Any] = json.loads(to_json(asdict(self)))
        return plain

    def write(self, folder: str | Path) -> None:
        """Write the result into its folder."""
        place = Path(folder)
        write_atomically(place / NAME, json.dumps(self.to_json(), indent=1) + "\n", parents=True)
        write_atomically(place / "tables.md", self.markdown())
        for table in self.tables:
            write_atomically(place / f"{table.id}.csv", to_csv(table))

    def markdown(self) -> str:
        """Claims and tables for people."""
        scale = f"Scale: {self.scale}. " if self.scale else ""
        parts = [f"# {self.title}", f"{scale}Made with `{'`, `'.join(self.commands)}`."]
        if self.claims:
            told = (f"- *{c.claim}*: **{VERDICTS[c.holds]}**. {c.evidence}" for c in self.claims)
            parts.append("\n".join(told))
        for table in self.tables:
            lines = [f"## {table.title}", "", _line(table.columns), _line(["---"] * len(table.columns))]
            lines += [_line([_cell(value) for value in row]) for row in table.rows]
            parts.append("\n".join(lines))
        return "\n\n".join(parts) + "\n"


def read(folder: str | Path) -> Result:
    """The result in a folder."""
    path = Path(folder, NAME)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Result(
            **found
            | {
                "claims": [Claim(**claim) for claim in found["claims"]],
                "tables": [Table(**table) for table in found["tables"]],
                "plots": [_plot(plot) for plot in found["plots"]],
            }
        )
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror}); is {folder} a result?") from error
    except (ValueError, TypeError, KeyError) as error:
        raise RecordError(f"{path}: is not a result that this version can read ({error})") from error


def to_csv(table: Table) -> str:
    """A table for other programs; what is missing is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows([["" if _missing(value) else value for value in row] for row in table.rows])
    return text.getvalue()


def _plot(found: dict[str, Any]) -> Plot:
    series = [Series(**one) for one in found["series"]]
    return Plot(**found | {"x": Axis(**found["x"]), "y": Axis(**found["y"]), "series": series})


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def _cell(value: Any) -> str:
    if _missing(value):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value))
