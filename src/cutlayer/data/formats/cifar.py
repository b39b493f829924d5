"""CIFAR-10 and CIFAR-100 (fine labels) from their official archives, Python and binary."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from cutlayer.data.dataset import Dataset, check_labels
from cutlayer.data.formats.cifar_files import LAYOUTS, Layout, find_cifar, read_files
from cutlayer.data.formats.cifar_pickle import read_cifar_pickle
from cutlayer.data.load_options import LoadOptions
from cutlayer.errors import DataError

_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE

# Images as rows of pixels, and one label each.
_Batch = tuple[npt.NDArray[np.uint8], list[int]]


def load_cifar(path: Path, options: LoadOptions) -> Dataset:
    """Load one split; `path` is an archive, its extracted folder, or the folder with either."""
    found = find_cifar(path)
    if found is None:
        archives = ", ".join(layout.archive for layout in LAYOUTS)
        raise DataError(f"{path}: no CIFAR files here; expected one of {archives}, or its content")
    place, layout = found
    wanted = layout.train if options.split == "train" else layout.test
    files = read_files(place, {*wanted, layout.names_file})
    missing = [name for name in wanted if name not in files]
    if missing:
        raise DataError(
            f"{place}: {', '.join(missing)} missing; {layout.archive} has "
            f"{', '.join(layout.train + layout.test)}: fetch it again"
        )
    read = _read_binary if layout.binary else _read_python
    images: list[npt.NDArray[np.uint8]] = []
    labels: list[int] = []
    for name in wanted:
        pixels, numbers = read(files.pop(name), layout, f"{place}: {name}")
        images.append(pixels)
        labels.extend(numbers)
    return Dataset(
        images=torch.from_numpy(np.concatenate(images)).view(-1, 3, _SIDE, _SIDE),
        labels=torch.tensor(labels, dtype=torch.int64),
        classes=layout.classes,
        class_names=_class_names(files.get(layout.names_file), layout, place),
        name=layout.name,
    )


def _read_python(data: bytes, layout: Layout, where: str) -> _Batch:
    table = read_cifar_pickle(data, where)
    pixels, labels = table.get("data"), table.get(str(layout.labels_key))
    if not isinstance(pixels, np.ndarray) or not isinstance(labels, list):
        raise DataError(
            f"{where}: expected the entries 'data' and '{layout.labels_key}', "
            f"found {', '.join(table) or 'none'}"
        )
    if pixels.ndim != 2 or pixels.shape[1] != _PIXELS or len(pixels) != len(labels):
        raise DataError(
            f"{where}: data of shape {list(pixels.shape)} and {len(labels)} labels; "
            f"expected [n, {_PIXELS}] and n labels"
        )
    for record, label in enumerate(labels):
        if type(label) is not int or label.bit_length() > 63:
            raise DataError(f"{where}: record {record} has a label that is no class number")
    _check_range(labels, layout, where)
    return pixels, labels


def _read_binary(data: bytes, layout: Layout, where: str) -> _Batch:
    length = layout.label_bytes + _PIXELS
    if len(data) % length:
        raise DataError(
            f"{where}: record {len(data) // length} is cut short ({len(data)} bytes are not whole "
            f"records of {length}); fetch the file again"
        )
    records = np.frombuffer(data, dtype=np.uint8).reshape(-1, length)
    labels: list[int] = records[:, layout.label_bytes - 1].tolist()
    _check_range(labels, layout, where)
    return records[:, layout.label_bytes :], labels


def _check_range(labels: list[int], layout: Layout, where: str) -> None:
    check_labels(torch.tensor(labels, dtype=torch.int64), layout.classes, lambda i: f"{where}: record {i}")


def _class_names(data: bytes | None, layout: Layout, place: Path) -> tuple[str, ...] | None:
    """Return the names if their file has them: they are for people, nothing depends on them."""
    if data is None:
        return None
    if layout.names_key is None:
        names: object = data.decode("latin-1").split()
    else:
        names = read_cifar_pickle(data, f"{place}: {layout.names_file}").get(layout.names_key)
    if not isinstance(names, list) or len(names) != layout.classes:
        return None
    names = [name.decode("latin-1") if isinstance(name, bytes) else name for name in names]
    return tuple(names) if all(isinstance(name, str) for name in names) else None
