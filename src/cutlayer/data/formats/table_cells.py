"""The cells of tables: columns of CSV and Parquet files, with errors that name file, row and column."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from cutlayer.data.formats.parquet import open_parquet
from cutlayer.errors import DataError

# Rows that are kept as words at a time.
_CHUNK = 8192

_REMEDY = "fill it in, or leave the row out"


@dataclass(frozen=True, eq=False)
class Column:
    """Cells of a column: numbers, or words where these were allowed and the first cell is one."""

    file: Path
    name: str
    values: Any
    words: bool = False

    def numbers(self) -> npt.NDArray[np.float64]:
        """The column as finite numbers, or an error that names the first cell that is none."""
        if self.words:
            _refuse(self.file, 0, self.name, self.values[0])
        found: npt.NDArray[np.float64] = self.values
        return found


def table_columns(file: Path) -> list[str]:
    """The names of a table's columns."""
    if file.suffix == ".parquet":
        with open_parquet(file) as table:
            return list(table.schema_arrow.names)
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            found = next(csv.reader(stream, delimiter=_delimiter(file)), None)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file}: cannot be read as a table ({error})") from error
    if not found:
        raise DataError(f"{file}: is empty; the first line names the columns")
    names = [name.strip() for name in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{file}: two columns are called {twice!r}; rename one")
    return names


def read_chunks(file: Path, columns: list[str], words: set[str]) -> Iterator[dict[str, Column]]:
    """These columns of a table, some thousand rows at a time. Those in `words` may hold words."""
    names = table_columns(file)
    missing = next((name for name in columns if name not in names), None)
    if missing is not None:
        raise DataError(f"{file}: no column {missing!r}; it has {', '.join(names)}")
    return (_parquet_chunks if file.suffix == ".parquet" else _csv_chunks)(file, columns, words)


def _csv_chunks(file: Path, columns: list[str], words: set[str]) -> Iterator[dict[str, Column]]:
    names = table_columns(file)
    places = {name: names.index(name) for name in columns}
    are_words: dict[str, bool] = {}
    done = 0
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, delimiter=_delimiter(file))
            next(reader)
            while rows := list(islice(reader, _CHUNK)):
                rows = [row for row in rows if row]
                for i, row in enumerate(rows):
                    if len(row) != len(names):
                        raise DataError(
                            f"{file}: row {done + i + 1} has {len(row)} cells, the header {len(names)}"
                        )
                if not rows:
                    continue
                cells = list(zip(*rows, strict=True))
                chunk = {}
                for name, place in places.items():
                    if name not in are_words:
                        are_words[name] = name in words and not _is_number(cells[place][0])
                    take = _word_cells if are_words[name] else _number_cells
                    chunk[name] = Column(file, name, take(file, done, name, cells[place]), are_words[name])
                yield chunk
                done += len(rows)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file}: row {done + 1} or later cannot be read ({error})") from error


def _parquet_chunks(file: Path, columns: list[str], words: set[str]) -> Iterator[dict[str, Column]]:
    done = 0
    with open_parquet(file) as table:
        for batch in table.iter_batches(batch_size=_CHUNK, columns=columns):
            yield {
                name: _parquet_cells(file, done, name, batch.column(name), name in words) for name in columns
            }
            done += batch.num_rows


def _parquet_cells(file: Path, done: int, name: str, cells: Any, words: bool) -> Column:
    if cells.null_count:
        row = done + cells.to_pylist().index(None)
        raise DataError(f"{file}: row {row + 1}, column {name!r}: is missing; {_REMEDY}")
    kind = str(cells.type)
    if kind.startswith(("int", "uint", "float", "double", "half", "bool")):
        numbers = cells.to_numpy(zero_copy_only=False).astype(np.float64)
        _check_finite(file, done, name, numbers)
        return Column(file, name, numbers)
    if words:
        return Column(file, name, np.array(cells.to_pylist(), dtype=object), True)
    raise DataError(
        f"{file}: row 1, column {name!r}: holds {kind}, not numbers; make categories numbers (one-hot), or "
        "leave the column out of data.features"
    )


def _number_cells(file: Path, done: int, name: str, cells: Any) -> npt.NDArray[np.float64]:
    try:
        numbers = np.array(cells, dtype=np.float64)
    except ValueError:
        place = next(i for i, cell in enumerate(cells) if not _is_number(cell))
        _refuse(file, done + place, name, cells[place])
    _check_finite(file, done, name, numbers)
    return numbers


def _word_cells(file: Path, done: int, name: str, cells: Any) -> npt.NDArray[np.object_]:
    for i, cell in enumerate(cells):
        if not cell.strip():
            _refuse(file, done + i, name, cell)
    return np.array([cell.strip() for cell in cells], dtype=object)


def _check_finite(file: Path, done: int, name: str, numbers: npt.NDArray[np.float64]) -> None:
    finite = np.isfinite(numbers)
    if not finite.all():
        place = int(np.argmin(finite))
        raise DataError(f"{file}: row {done + place + 1}, column {name!r}: is {numbers[place]}; {_REMEDY}")


def _refuse(file: Path, row: int, name: str, cell: Any) -> NoReturn:
    place = f"{file}: row {row + 1}, column {name!r}"
    if not str(cell).strip():
        raise DataError(f"{place}: is missing; {_REMEDY}")
    raise DataError(
        f"{place}: {str(cell)[:40]!r} is no number; correct it, make categories numbers (one-hot), or leave "
        "the column out of data.features"
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _delimiter(file: Path) -> str:
    return "\t" if file.suffix == ".tsv" else ","
