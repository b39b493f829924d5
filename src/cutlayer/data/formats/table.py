"""Tables, CSV or Parquet: some columns are features, others the target.

Features are numbers; they are standardised with the statistics of the training part when a batch is taken.
A cell that is missing or no number is an error that names file, row and column: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.data.arrays import ArrayDataset
from cutlayer.data.form import Statistics
from cutlayer.data.formats import parquet
from cutlayer.data.formats.table_cells import Column, read_csv, read_parquet, table_columns
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
        parts = {"train": train, "test": test}
    else:
        labels = train.targets if train.classed else torch.zeros(len(train.targets), dtype=torch.int64)
        parts = {}
        for split in ("train", "test"):
            kept = hold_out(labels, split, options.test_fraction, options.split_seed, str(path))
            parts[split] = train.select(kept)
    # Of the training part, whichever split is asked for.
    statistics = _statistics(parts["train"].features)
    wanted = parts[options.split]
    return ArrayDataset(
        wanted.features.to(torch.float32),
        wanted.targets,
        train.classes,
        class_names=train.names,
        name=path.stem,
        statistics=statistics,
        where=lambda index: wanted.where[index],
    )


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
    wanted = list(features) or columns
    read = read_parquet if path.suffix == ".parquet" else read_csv
    found = read(path, wanted, set())
    return torch.from_numpy(np.stack([found[name].numbers() for name in wanted], axis=1)).to(torch.float32)


class _Part:
    """Rows of a table as numbers, and where each comes from."""

    def __init__(
        self, features: Tensor, targets: Tensor, names: tuple[str, ...] | None, where: list[str]
    ) -> None:
        self.features = features
        self.targets = targets
        self.names = names
        self.where = where
        self.classed = targets.dtype == torch.int64 and targets.dim() == 1
        counted = int(targets.max()) + 1 if self.classed and len(targets) else 0
        self.classes = len(names) if names is not None else counted

    def select(self, indices: Tensor) -> _Part:
        where = [self.where[i] for i in indices.tolist()]
        return _Part(self.features[indices], self.targets[indices], self.names, where)


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
) -> _Part:
    """All rows of these files. `names` are the classes, where another part has decided them."""
    pieces: list[dict[str, Column]] = []
    where: list[str] = []
    words = names is not None or options.target_kind == "classes"
    wanted = [*features, *targets]
    for file in files:
        read = read_parquet if file.suffix == ".parquet" else read_csv
        kind = options.target_kind
        maybe = set(targets) if words or (kind == "auto" and len(targets) == 1) else set()
        pieces.append(read(file, wanted, maybe))
        rows = len(pieces[-1][wanted[0]].values)
        where += [f"{file}: row {row + 1}" for row in range(rows)]
    if not where:
        raise DataError(f"{files[0]}: the table has no rows")
    matrix = np.stack([np.concatenate([p[name].numbers() for p in pieces]) for name in features], axis=1)
    columns = [[p[name] for p in pieces] for name in targets]
    found, names = _targets(columns, targets, options, names, where)
    return _Part(torch.from_numpy(matrix), found, names, where)


def _targets(
    columns: list[list[Column]],
    targets: list[str],
    options: LoadOptions,
    names: tuple[str, ...] | None,
    where: list[str],
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
                    f"{where[row]}, column {targets[0]!r}: {word!r} is no class of the train part; it has "
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
                f"{where[row]}, column {targets[column]!r}: {values[row, column]:g} is no "
                f"{'0 or 1' if kind == 'bits' else 'class number'}; correct it, or choose another task"
            )
    shaped: npt.NDArray[np.float64] = values[:, 0] if len(columns) == 1 and kind != "bits" else values
    if kind == "bits":
        return torch.from_numpy(shaped.astype(np.bool_)), None
    return torch.from_numpy(shaped.astype(np.int64 if kind == "classes" else np.float32)), None


def _statistics(features: Tensor) -> Statistics:
    mean, std = features.mean(0), features.std(0, unbiased=False)
    # A column of one value has nothing to scale.
    std[std == 0] = 1.0
    return Statistics(tuple(mean.tolist()), tuple(std.tolist()))
