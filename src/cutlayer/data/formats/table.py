"""Tables, CSV or Parquet: some columns are features, others the target.

Features are numbers; they are standardised with the statistics of the training part when a batch is taken.
A cell that is missing or no number is an error that names file, row and column: nothing is guessed. The
features of a large table are written to a temporary file once, and read from there batch by batch.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.data.arrays import ArrayDataset
from cutlayer.data.form import Statistics
from cutlayer.data.formats import parquet
from cutlayer.data.formats.file_rows import IN_MEMORY, FileRows, RowWriter
from cutlayer.data.formats.table_cells import Column, read_chunks, table_columns
from cutlayer.data.load_options import LoadOptions
from cutlayer.data.stratify import hold_out
from cutlayer.errors import DataError

_SUFFIXES = (".csv", ".tsv", ".parquet")
_TEST = ("test", "validation", "valid", "val")
# Columns that hold images: such Parquet files are no tables.
_IMAGES = {"img", "image"}


def is_table(path: Path) -> bool:
    """Whether a path is a CSV file, a Parquet file without images, or a folder with such a train part."""
    if path.is_file():
        if path.suffix != ".parquet":
            return path.suffix in _SUFFIXES
        return not _IMAGES & set(table_columns(path))
    files = _files(path)
    return bool(files) and not (files[0].suffix == ".parquet" and _IMAGES & set(table_columns(files[0])))


def load_table(path: Path, options: LoadOptions) -> ArrayDataset:
    """Load one split."""
    train_files = [path] if path.is_file() else _files(path)
    if not train_files:
        raise DataError(f"{path}: no table; expected a .csv or .parquet file, or a folder with train.csv")
    test_files = [] if path.is_file() else _files(path, *_TEST)
    columns = table_columns(train_files[0])
    targets, features = _chosen(train_files[0], columns, options)
    train = _read(train_files, features, targets, options)
    if test_files:
        test = _read(test_files, features, targets, options, names=train.names)
        kept, wanted = None, train if options.split == "train" else test
        statistics = _statistics(train.features, None)
    else:
        labels = train.targets if train.classed else torch.zeros(len(train.targets), dtype=torch.int64)
        fraction, seed = options.test_fraction, options.split_seed
        kept, wanted = hold_out(labels, options.split, fraction, seed, str(path)), train
        # Of the training part, whichever split is asked for.
        statistics = _statistics(train.features, hold_out(labels, "train", fraction, seed, str(path)))
    rows = wanted.features
    whole = ArrayDataset(
        rows.to(torch.float32) if isinstance(rows, Tensor) else rows,
        wanted.targets,
        train.classes,
        class_names=train.names,
        name=path.stem,
        statistics=statistics,
        where=wanted.where,
    )
    return whole if kept is None else whole.select(kept)


def load_features(path: Path, targets: Sequence[str], features: Sequence[str]) -> Tensor | None:
    """The features of all rows of a table that has no column with a target; None of any other."""
    if not path.is_file() or path.suffix not in _SUFFIXES or not is_table(path):
        return None
    columns = table_columns(path)
    if not targets or set(targets) & set(columns):
        return None
    missing = next((name for name in features if name not in columns), None)
    if missing is not None:
        raise DataError(f"{path}: no column {missing!r}; it has {', '.join(columns)}")
    pieces = [_matrix(chunk, list(features) or columns) for chunk in read_chunks(path, columns, set())]
    if not pieces:
        raise DataError(f"{path}: the table has no rows")
    return torch.from_numpy(np.concatenate(pieces)).to(torch.float32)


@dataclass(frozen=True, eq=False)
class _Table:
    """All rows of some files as numbers: features in memory as float64, or in a temporary file as float32."""

    features: Tensor | FileRows
    targets: Tensor
    names: tuple[str, ...] | None
    where: Callable[[int], str]
    """The file and the number of a row, for errors."""

    @property
    def classed(self) -> bool:
        """Whether targets are classes."""
        return self.targets.dtype == torch.int64 and self.targets.dim() == 1

    @property
    def classes(self) -> int:
        """How many classes there are; 0 if targets are none."""
        if self.names is not None:
            return len(self.names)
        return int(self.targets.max()) + 1 if self.classed and len(self.targets) else 0


def _files(path: Path, *names: str) -> list[Path]:
    """The files of a split in a folder: train.csv, or shards of Parquet."""
    if not path.is_dir():
        return []
    for name in names or ("train",):
        for suffix in (".csv", ".tsv"):
            if (path / f"{name}{suffix}").is_file():
                return [path / f"{name}{suffix}"]
    shards = parquet.find_shards(path)
    wanted = names or ("train", "all")
    return next((shards[name] for name in wanted if name in shards), [])


def _chosen(file: Path, columns: list[str], options: LoadOptions) -> tuple[list[str], list[str]]:
    """The names of target and feature columns."""
    if not options.target:
        what = "no column 'img' or 'image', so it is a table: " if file.suffix == ".parquet" else ""
        raise DataError(
            f"{file}: {what}which column is the target? It has {', '.join(columns)}; say --set "
            "data.target=NAME"
        )
    unknown = [name for name in (*options.target, *options.features) if name not in columns]
    if unknown:
        raise DataError(f"{file}: no column {unknown[0]!r}; it has {', '.join(columns)}")
    targets = list(options.target)
    features = list(options.features) or [name for name in columns if name not in targets]
    both = sorted(set(features) & set(targets))
    if both or not features:
        wrong = f"column {both[0]!r} is feature and target" if both else "there are no feature columns"
        raise DataError(f"{file}: {wrong}; change data.features or data.target")
    return targets, features


def _read(
    files: list[Path],
    features: list[str],
    targets: list[str],
    options: LoadOptions,
    names: tuple[str, ...] | None = None,
) -> _Table:
    """All rows of these files. `names` are the classes, where another part has decided them."""
    words = names is not None or options.target_kind == "classes"
    maybe = set(targets) if words or (options.target_kind == "auto" and len(targets) == 1) else set()
    # In memory a table takes about as much as its file.
    large = options.lazy or sum(file.stat().st_size for file in files) > IN_MEMORY
    writer = RowWriter(len(features), options.cache_dir) if large else None
    pieces: list[npt.NDArray[np.float64]] = []
    columns: dict[str, list[Column]] = {name: [] for name in targets}
    ends: list[int] = []
    rows = 0
    for file in files:
        for chunk in read_chunks(file, [*features, *targets], maybe):
            matrix = _matrix(chunk, features)
            rows += len(matrix)
            if writer is None:
                pieces.append(matrix)
            else:
                writer.append(matrix)
            for name in targets:
                columns[name].append(chunk[name])
        ends.append(rows)
    if not rows:
        raise DataError(f"{files[0]}: the table has no rows")

    def where(row: int) -> str:
        number = bisect.bisect_right(ends, row)
        return f"{files[number]}: row {row - (ends[number - 1] if number else 0) + 1}"

    found, names = _targets(list(columns.values()), targets, options, names, where)
    read = torch.from_numpy(np.concatenate(pieces)) if writer is None else writer.rows()
    return _Table(read, found, names, where)


def _matrix(chunk: dict[str, Column], features: list[str]) -> npt.NDArray[np.float64]:
    return np.stack([chunk[name].numbers() for name in features], axis=1)


def _targets(
    columns: list[list[Column]],
    targets: list[str],
    options: LoadOptions,
    names: tuple[str, ...] | None,
    where: Callable[[int], str],
) -> tuple[Tensor, tuple[str, ...] | None]:
    kind = options.target_kind
    first = columns[0]
    if len(columns) == 1 and kind in ("auto", "classes") and (names or any(c.words for c in first)):
        words = [str(word) for column in first for word in column.values]
        names = names or tuple(sorted(set(words)))
        number = {name: i for i, name in enumerate(names)}
        for row, word in enumerate(words):
            if word not in number:
                raise DataError(
                    f"{where(row)}, column {targets[0]!r}: {word!r} is no class of the train part; it has "
                    f"{', '.join(names[:8])}"
                )
        return torch.tensor([number[word] for word in words], dtype=torch.int64), names
    values = np.stack([np.concatenate([c.numbers() for c in column]) for column in columns], axis=1)
    if kind in ("classes", "bits"):
        most = 2 if kind == "bits" else float("inf")
        bad = (values != np.floor(values)) | (values < 0) | (values >= most)
        if bad.any():
            row, column = (int(i) for i in np.argwhere(bad)[0])
            raise DataError(
                f"{where(row)}, column {targets[column]!r}: {values[row, column]:g} is no "
                f"{'0 or 1' if kind == 'bits' else 'class number'}; correct it, or choose another task"
            )
    shaped: npt.NDArray[np.float64] = values[:, 0] if len(columns) == 1 and kind != "bits" else values
    if kind == "bits":
        return torch.from_numpy(shaped.astype(np.bool_)), None
    return torch.from_numpy(shaped.astype(np.int64 if kind == "classes" else np.float32)), None


def _statistics(rows: Tensor | FileRows, kept: Tensor | None) -> Statistics:
    """Mean and standard deviation of each column over the kept rows, or over all."""
    if isinstance(rows, Tensor):
        features = rows if kept is None else rows[kept]
        mean, std = features.mean(0), features.std(0, unbiased=False)
    else:
        pieces = torch.split(torch.arange(len(rows)) if kept is None else kept, 1 << 14)
        count = sum(map(len, pieces))
        mean = torch.stack([rows.take(piece).double().sum(0) for piece in pieces]).sum(0) / count
        squares = [(rows.take(piece).double() - mean).square().sum(0) for piece in pieces]
        std = (torch.stack(squares).sum(0) / count).sqrt()
    # A column of one value has nothing to scale.
    std[std == 0] = 1.0
    return Statistics(tuple(mean.tolist()), tuple(std.tolist()))
