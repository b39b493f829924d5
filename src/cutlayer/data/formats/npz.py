"""Arrays of NumPy: an `.npz` file, or a folder of `.npy` files, with inputs and targets under known names.

What is not compressed and large is read as it is needed; nothing is unpickled.
"""

from __future__ import annotations

import math
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.data.arrays import ArrayDataset, Rows, first_bad
from cutlayer.data.dataset import Dataset
from cutlayer.data.form import DataSource
from cutlayer.data.formats.file_rows import IN_MEMORY, FileRows, as_tensor
from cutlayer.data.load_options import LoadOptions
from cutlayer.data.stratify import hold_out_any
from cutlayer.errors import DataError

#: The names of inputs and targets. Those with `train` and `test` in them come first.
NAMES = (("x", "y"), ("inputs", "targets"), ("images", "labels"), ("images", "masks"))


@dataclass(frozen=True)
class _Entry:
    """An array in a file: where it begins, unless it is compressed."""

    path: Path
    member: str
    dtype: npt.DTypeLike
    shape: tuple[int, ...]
    offset: int | None

    @property
    def nbytes(self) -> int:
        return np.dtype(self.dtype).itemsize * math.prod(self.shape)


def is_npz(path: Path) -> bool:
    """Whether a path is an `.npz` file, or a folder with inputs and targets as `.npy` files."""
    if path.is_file():
        return path.suffix == ".npz"
    return path.is_dir() and any(
        (path / f"{x}{part}.npy").exists() for x, _ in NAMES for part in ("", "_train")
    )


def load_npz(path: Path, options: LoadOptions) -> DataSource:
    """Load one split."""
    entries = _folder(path) if path.is_dir() else _members(path)
    for x, y in NAMES:
        for train, test in (("{}_train", "{}_test"), ("train_{}", "test_{}"), ("{}", "")):
            inputs, target = train.format(x), train.format(y)
            if target not in entries or not _matching(entries, inputs):
                continue
            held_out = not (test and test.format(y) in entries and _matching(entries, test.format(x)))
            if options.split == "test" and not held_out:
                made = _dataset(path, entries, test.format(x), test.format(y), options, of=entries[target])
            else:
                made = _dataset(path, entries, inputs, target, options)
            if not held_out:
                return made
            chosen = hold_out_any(made, options.split, options.test_fraction, options.split_seed, str(path))
            return made.select(chosen)
    raise DataError(
        f"{path}: no inputs and targets; it has {', '.join(entries) or 'nothing'}. Name them x and y, or "
        "x_train, y_train, x_test and y_test"
    )


def _matching(entries: dict[str, _Entry], name: str) -> list[str]:
    """The array of that name, or the arrays name/a, name/b, ... of several inputs."""
    return [name] if name in entries else [key for key in entries if key.startswith(f"{name}/")]


def _dataset(
    path: Path,
    entries: dict[str, _Entry],
    inputs: str,
    target: str,
    options: LoadOptions,
    of: _Entry | None = None,
) -> DataSource:
    names = _matching(entries, inputs)
    rows = {name.removeprefix(f"{inputs}/"): _open(entries[name], options, True) for name in names}
    targets = _open(entries[target], options, False)
    for name, each in zip(names, rows.values(), strict=True):
        if len(each) != len(targets):
            raise DataError(
                f"{path}: {name} has {len(each)} rows and {target} {len(targets)}; each row needs a target"
            )
    # The test part has the classes of the train part.
    classes = options.classes or _values(targets if of is None else _open(of, options, False), path, target)
    tokens = max((_values(each, path, inputs) for each in rows.values()), default=0)
    one = next(iter(rows.values())) if names == [inputs] else None
    if isinstance(one, Tensor) and isinstance(targets, Tensor) and targets.dim() == 1:
        scaled = one.dtype == torch.uint8 or one.dtype == torch.float32
        if scaled and one.dim() > 1 and targets.dtype == torch.int64:
            bad = first_bad(one)
            if bad is not None:
                raise DataError(f"{path}: row {bad[0]} {bad[1]}; correct it or leave it out")
            return Dataset(one, targets, classes, name=path.stem)
    return ArrayDataset(
        dict(rows) if one is None else one,
        targets,
        classes,
        tokens,
        options.ignore,
        name=path.stem,
        where=lambda index: f"{path}: row {index}",
    )


def _open(entry: _Entry, options: LoadOptions, is_input: bool) -> Tensor | Rows:
    shape, images = entry.shape[1:], False
    if is_input and np.dtype(entry.dtype) == np.uint8 and len(shape) in (2, 3):
        images = True
        # Grey images often come without a channel.
        shape = (1, *shape) if len(shape) == 2 else shape
        if shape[0] not in (1, 3) and shape[-1] in (1, 3):
            raise DataError(
                f"{entry.path}: {entry.member} has images of {list(shape)}; transpose them to [C, H, W]"
            )
    if entry.offset is not None and (options.lazy or entry.nbytes > IN_MEMORY):
        return FileRows(entry.path, entry.dtype, shape, entry.shape[0], offset=entry.offset, images=images)
    array = _read(entry)
    return as_tensor(array.reshape(len(array), *shape), images=images)


def _values(rows: Tensor | Rows, path: Path, name: str) -> int:
    """How many values integers have; 0 for anything else."""
    one = rows[:1] if isinstance(rows, Tensor) else rows.take(torch.zeros(1, dtype=torch.int64))
    if one.dtype != torch.int64:
        return 0
    if isinstance(rows, Tensor):
        low, high = (int(end) for end in torch.aminmax(rows)) if rows.numel() else (0, 0)
    else:
        high = rows.largest() if isinstance(rows, FileRows) else 0
        low = min(0, high)
    if low < 0:
        raise DataError(f"{path}: {name} has negative integers; classes and tokens are numbered from 0")
    return high + 1


def _read(entry: _Entry) -> npt.NDArray[np.generic]:
    try:
        if entry.offset is not None:
            flat = np.fromfile(entry.path, entry.dtype, math.prod(entry.shape), offset=entry.offset)
            return flat.reshape(entry.shape)
        with np.load(entry.path, allow_pickle=False) as file:
            found: npt.NDArray[np.generic] = file[entry.member]
            return found
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, MemoryError) as error:
        raise DataError(f"{entry.path}: {entry.member} cannot be read ({error})") from error


def _folder(path: Path) -> dict[str, _Entry]:
    found = {}
    for file in sorted(path.glob("*.npy")):
        with file.open("rb") as stream:
            found[file.stem] = _header(file, file.stem, stream, stored=True)
    return found


def _members(path: Path) -> dict[str, _Entry]:
    """The arrays of an archive. One that is only stored begins right behind its own header."""
    found = {}
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            for info in archive.infolist():
                name = info.filename.removesuffix(".npy")
                if info.compress_type != zipfile.ZIP_STORED:
                    with archive.open(info) as stream:
                        found[name] = _header(path, name, stream, stored=False)
                    continue
                file.seek(info.header_offset)
                name_bytes, extra_bytes = struct.unpack("<26xHH", file.read(30))
                file.seek(info.header_offset + 30 + name_bytes + extra_bytes)
                found[name] = _header(path, name, file, stored=True)
    except (OSError, zipfile.BadZipFile, struct.error, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{path}: cannot be read as .npz ({error}); it is damaged, make it again") from error
    return found


def _header(path: Path, name: str, stream: IO[bytes], *, stored: bool) -> _Entry:
    """What the array that begins here is. Its bytes follow, unless they are compressed."""
    try:
        version = np.lib.format.read_magic(stream)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read(stream)
    except (ValueError, EOFError) as error:
        raise DataError(f"{path}: {name} is no array of NumPy ({error})") from error
    if dtype.kind not in "biuf":
        raise DataError(f"{path}: {name} holds {dtype}; expected numbers. Nothing is unpickled")
    if not shape or (fortran and len(shape) > 1):
        raise DataError(f"{path}: {name} must be [N, ...] in C order, samples in front")
    return _Entry(path, name, dtype, tuple(shape), stream.tell() if stored else None)
