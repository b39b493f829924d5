"""Rows of an array in a file, read when they are asked for: a data set may be larger than memory.

Files are read, not mapped: pages of a mapped file count as memory of the process until somebody needs it.
"""

from __future__ import annotations

import math
import os
import tempfile
import weakref
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.errors import DataError

#: Larger arrays, and tables, are read as needed.
IN_MEMORY = 1 << 28


class FileRows:
    """`count` rows of `shape`, each `stride` bytes behind the one before; by default they lie back to back.

    Rows come as the dtype that training takes: floats as float32, other numbers as int64, and uint8 images
    and booleans as they are.
    """

    def __init__(
        self,
        path: Path,
        dtype: npt.DTypeLike,
        shape: tuple[int, ...],
        count: int,
        *,
        offset: int = 0,
        images: bool = False,
    ) -> None:
        self._path = path
        self._dtype = np.dtype(dtype)
        self._shape = shape
        self._count = count
        self._offset = offset
        self._images = images
        self._bytes = self._dtype.itemsize * math.prod(shape)
        try:
            size = path.stat().st_size
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from error
        if offset + count * self._bytes > size:
            raise DataError(
                f"{path}: ends after {size} bytes, but its {count} rows need {offset + count * self._bytes}; "
                "it is cut short, fetch it again"
            )

    def __len__(self) -> int:
        """How many rows there are."""
        return self._count

    @property
    def nbytes(self) -> int:
        """What all rows take."""
        return self._count * self._bytes

    def take(self, indices: Tensor) -> Tensor:
        """See `Rows.take`."""
        numbers = indices.tolist()
        found = np.empty((len(numbers), *self._shape), self._dtype)
        rows = found.reshape(len(numbers), -1).view(np.uint8) if found.size else found
        try:
            # Opened for each batch: nothing stays open, and copies in other processes are as good.
            with self._path.open("rb", buffering=0) as file:
                for row, number in zip(rows, numbers, strict=True):
                    if not 0 <= number < self._count:
                        raise IndexError(f"row {number} of {self._count}")
                    file.seek(self._offset + number * self._bytes)
                    if file.readinto(row.data) != self._bytes:
                        raise DataError(f"{self._path}: row {number} is cut short; the file has changed")
        except OSError as error:
            raise DataError(f"{self._path}: cannot be read any more ({error.strerror})") from error
        return as_tensor(found, images=self._images)

    def largest(self) -> int:
        """The largest of all integers, read piece by piece; -1 if one is negative."""
        high = 0
        step = max(1, (1 << 22) // max(1, self._bytes))
        for first in range(0, self._count, step):
            piece = self.take(torch.arange(first, min(self._count, first + step)))
            if piece.numel():
                low, top = (int(end) for end in torch.aminmax(piece))
                if low < 0:
                    return -1
                high = max(high, top)
        return high


class RowWriter:
    """Rows of float32 that are written to a temporary file as they come, to be read from there as needed."""

    def __init__(self, width: int, folder: Path | None) -> None:
        self._width = width
        self._count = 0
        self._folder = folder or Path(tempfile.gettempdir())
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(".rows", "cutlayer-", self._folder)
        except OSError as error:
            raise self._failed(error) from error
        os.close(handle)
        self._path = Path(name)
        self._remove = weakref.finalize(self, self._path.unlink, missing_ok=True)

    def append(self, rows: npt.NDArray[np.float64]) -> None:
        """Write these rows behind the others."""
        try:
            with self._path.open("ab") as file:
                file.write(rows.astype("<f4").tobytes())
        except OSError as error:
            raise self._failed(error) from error
        self._count += len(rows)

    def rows(self) -> FileRows:
        """All rows. Their file is removed when nobody has them any more."""
        found = FileRows(self._path, "<f4", (self._width,), self._count)
        self._remove.detach()
        weakref.finalize(found, self._path.unlink, missing_ok=True)
        return found

    def _failed(self, error: OSError) -> DataError:
        return DataError(
            f"{self._folder}: rows of a large table cannot be written there ({error.strerror}); name a "
            "folder with room: --set data.cache_dir=PATH"
        )


def as_tensor(array: npt.NDArray[np.generic], *, images: bool = False) -> Tensor:
    """An array as the dtype that training takes."""
    native = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))
    if native.dtype.kind == "f":
        return torch.from_numpy(native.astype(np.float32, copy=False))
    if native.dtype.kind == "b" or (images and native.dtype == np.uint8):
        return torch.from_numpy(native)
    return torch.from_numpy(native.astype(np.int64, copy=False))
