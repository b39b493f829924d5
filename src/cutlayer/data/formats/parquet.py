"""Hugging Face-style Parquet: encoded images in one column, class numbers in another."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cutlayer.data.formats.encoded import Record, Records
from cutlayer.data.load_options import Split
from cutlayer.errors import DataError
from cutlayer.imports import need

_IMAGE_COLUMNS = ("img", "image")
_LABEL_COLUMNS = ("fine_label", "label")

# The hub's names: train-00000-of-00002.parquet, or train/0000.parquet.
_SPLIT = re.compile(r"(train|test|validation|valid|val)(?:[-_.]|$)")
_TEST_ORDER = ("test", "validation", "valid", "val")

# A larger label is damage, and counting up to it would take as much memory.
_MOST_CLASSES = 1_000_000


def find_shards(path: Path) -> dict[str, list[Path]]:
    """Return the Parquet files at `path` by split, those that belong to none under "all"."""
    if path.is_file():
        return {"all": [path]} if path.suffix == ".parquet" else {}
    shards: dict[str, list[Path]] = {}
    # Not deeper: a look into each class of a large image folder would take minutes.
    for file in sorted([*path.glob("*.parquet"), *path.glob("*/*.parquet")]):
        # Only names below `path` count: the folder itself may be called "test-data".
        inner = "" if file.parent == path else file.parent.name
        match = _SPLIT.match(file.name) or _SPLIT.match(inner)
        shards.setdefault(match[1] if match else "all", []).append(file)
    return shards


def find_records(path: Path, split: Split) -> tuple[Records, bool]:
    """Return the records that a split is made of, and whether a test part must be held out."""
    shards = find_shards(path)
    train = shards.get("train") or shards.get("all")
    if not train:
        raise DataError(
            f"{path}: no training data; expected one .parquet file, or a folder of "
            f"train-*.parquet and test-*.parquet, found {_listing(shards)}"
        )
    has_test = any(name in shards for name in _TEST_ORDER)
    names, classes = _classes(train)
    files = _labelled(shards) if has_test and split == "test" else train
    return _open(files, names, classes), not has_test


def _labelled(shards: dict[str, list[Path]]) -> list[Path]:
    """Return the first test part that has labels: ImageNet's `test` on the hub has only -1."""
    parts = [shards[name] for name in _TEST_ORDER if name in shards]
    for files in parts:
        if not bool((_labels(files)[0] == -1).all()):
            return files
    return parts[0]


def _classes(train: list[Path]) -> tuple[tuple[str, ...] | None, int]:
    """Return names and number of classes; without metadata the training labels give the number."""
    names = _names(train[0])
    if names:
        return names, len(names)
    return None, min(max(1, int(_labels(train)[0].max()) + 1), _MOST_CLASSES)


def _open(files: list[Path], names: tuple[str, ...] | None, classes: int) -> Records:
    labels, starts = _labels(files)

    def where(index: int) -> str:
        file = bisect_right(starts, index) - 1
        return f"{files[file]}: row {index - starts[file]}"

    def read(indices: Tensor) -> Iterator[Record]:
        for file, start, end in zip(files, starts, [*starts[1:], len(labels)], strict=True):
            rows = indices[(indices >= start) & (indices < end)] - start
            yield from _read(file, rows)

    return Records(
        labels=labels,
        classes=classes,
        class_names=names,
        files=tuple(files),
        read=read,
        where=where,
    )


def _labels(files: list[Path]) -> tuple[Tensor, list[int]]:
    """Return the labels of all files in order, and the index at which each file starts."""
    columns, starts, total = [], [], 0
    for file in files:
        with open_parquet(file) as table:
            name = _column(table, _LABEL_COLUMNS, file)
            column = table.read(columns=[name]).column(0)
            if column.null_count:
                row = column.to_pylist().index(None)
                raise DataError(f"{file}: row {row} has no {name}; remove it or fill it in")
            if not str(column.type).startswith(("int", "uint")):
                raise DataError(f"{file}: {name} is {column.type}; expected whole class numbers")
            columns.append(torch.from_numpy(column.to_numpy().astype(np.int64)))
        starts.append(total)
        total += len(columns[-1])
    if total == 0:
        raise DataError(f"{files[0]}: the split is empty: no rows in {len(files)} file(s)")
    return torch.cat(columns), starts


def _read(file: Path, rows: Tensor) -> Iterator[Record]:
    """Yield the encoded images of ascending rows, touching only the row groups they are in."""
    if not len(rows):
        return
    with open_parquet(file) as table:
        name = _column(table, _IMAGE_COLUMNS, file)
        start = 0
        for group in range(table.num_row_groups):
            end = start + table.metadata.row_group(group).num_rows
            chosen = rows[(rows >= start) & (rows < end)].tolist()
            if chosen:
                column = table.read_row_group(group, columns=[name]).column(0)
                for row in chosen:
                    value = column[row - start].as_py()
                    encoded = value.get("bytes") if isinstance(value, dict) else value
                    if not isinstance(encoded, bytes):
                        raise DataError(
                            f"{file}: row {row} holds no image bytes in {name!r}; "
                            "files that only point to images elsewhere are not read"
                        )
                    yield Record(encoded, f"{file}: row {row}")
            start = end


def _names(file: Path) -> tuple[str, ...] | None:
    """Return the class names that the hub's metadata give, if they are there."""
    with open_parquet(file) as table:
        name = _column(table, _LABEL_COLUMNS, file)
        text = (table.schema_arrow.metadata or {}).get(b"huggingface", b"{}")
    try:
        names = json.loads(text)["info"]["features"][name]["names"]
        if isinstance(names, dict):
            names = [names[key] for key in sorted(names, key=int)]
    except (ValueError, KeyError, TypeError):
        return None
    return tuple(map(str, names)) if isinstance(names, list) and names else None


def _column(table: Any, choices: tuple[str, ...], file: Path) -> str:
    present = table.schema_arrow.names
    for name in choices:
        if name in present:
            return name
    raise DataError(f"{file}: no column {' or '.join(map(repr, choices))}; it has {', '.join(present)}")


@contextmanager
def open_parquet(file: Path) -> Iterator[Any]:
    """Open a file, and turn what pyarrow raises while it is read into an error that names it."""
    reader = need("pyarrow.parquet", "reading Parquet files")
    arrow = need("pyarrow", "reading Parquet files")
    try:
        with reader.ParquetFile(file) as table:
            yield table
    except (arrow.ArrowException, OSError, UnicodeDecodeError, IndexError) as error:
        # The last two come from damaged text and from groups shorter than the file's index says.
        raise DataError(
            f"{file}: cannot be read as Parquet ({error}); it is damaged, fetch it again"
        ) from error


def _listing(shards: dict[str, list[Path]]) -> str:
    return ", ".join(f"{len(files)} of {name}" for name, files in shards.items()) or "none"
