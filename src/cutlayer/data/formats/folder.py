"""Image folders: one subfolder a class, as ImageNet-1K is laid out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from cutlayer.data.formats.encoded import Record, Records
from cutlayer.data.load_options import Split
from cutlayer.errors import DataError
from cutlayer.pixels import SUFFIXES

# ImageNet's own `test` has no labels, so validation comes first.
_TEST_ORDER = ("val", "validation", "valid", "test")


def is_image_folder(path: Path) -> bool:
    """Tell whether `path` has class folders with images, directly or under `train`."""
    if not path.is_dir():
        return False
    root = path / "train" if (path / "train").is_dir() else path
    return any(next(_images(folder), None) for folder in _folders(root))


def find_records(path: Path, split: Split) -> tuple[Records, bool]:
    """Return the records that a split is made of, and whether a test part must be held out."""
    if not (path / "train").is_dir():
        return _scan(path, _classes(path)), True
    classes = _classes(path / "train")
    test = next((path / name for name in _TEST_ORDER if (path / name).is_dir()), None)
    if split == "train" or test is None:
        return _scan(path / "train", classes), test is None
    if not _folders(test):
        raise DataError(
            f"{test}: no class folders; sort its images into one folder a class, named as in {path / 'train'}"
        )
    unknown = sorted({folder.name for folder in _folders(test)} - set(classes))
    if unknown:
        raise DataError(
            f"{test}: class {unknown[0]!r} is not in {path / 'train'} "
            f"({len(unknown)} such classes in all); both must have the same class folders"
        )
    return _scan(test, classes), False


def _scan(root: Path, classes: tuple[str, ...]) -> Records:
    """List the images of each class, in an order that does not depend on the file system."""
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        found = sorted(_images(root / name)) if (root / name).is_dir() else []
        files.extend(found)
        labels.extend([label] * len(found))
    if not files:
        raise DataError(
            f"{root}: the split is empty: no {', '.join(SUFFIXES)} files in its {len(classes)} class folders"
        )

    def read(indices: Tensor) -> Iterator[Record]:
        for index in indices.tolist():
            yield Record(files[index], str(files[index]))

    return Records(
        labels=torch.tensor(labels, dtype=torch.int64),
        classes=len(classes),
        class_names=classes,
        files=tuple(files),
        read=read,
        where=lambda index: str(files[index]),
    )


def _classes(root: Path) -> tuple[str, ...]:
    return tuple(folder.name for folder in _folders(root))


def _folders(root: Path) -> list[Path]:
    return sorted(item for item in root.iterdir() if item.is_dir() and item.name[0] != ".")


def _images(folder: Path) -> Iterator[Path]:
    # Some data sets put the images of a class one level deeper, as Tiny-ImageNet does.
    for place, _, names in os.walk(folder):
        for name in names:
            if name.lower().endswith(SUFFIXES) and name[0] != ".":
                yield Path(place, name)
