"""Encoded images that have been found but not decoded: what Parquet files and folders give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from cutlayer.data.dataset import check_labels


@dataclass(frozen=True)
class Record:
    """One encoded image, as bytes or as the file that holds them, and its name for errors."""

    source: bytes | Path
    where: str


@dataclass(frozen=True, eq=False)
class Records:
    """The labelled images of one split.

    `read(indices)` yields the records of ascending indices, in that order. `files` are what the
    pixels depend on, so their sizes and times tell whether decoded copies are still good.
    """

    labels: Tensor
    classes: int
    class_names: tuple[str, ...] | None
    files: tuple[Path, ...]
    read: Callable[[Tensor], Iterator[Record]]
    where: Callable[[int], str]

    def check(self) -> None:
        """Refuse labels out of range before anything is computed from them."""
        check_labels(self.labels, self.classes, self.where)
