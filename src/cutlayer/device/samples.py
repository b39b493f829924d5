"""Samples of a device, without PyTorch: images in files and folders, or arrays in .npy and .npz files."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cutlayer.device.data_form import DataForm
from cutlayer.errors import DataError
from cutlayer.pixels import SUFFIXES, decode_image

ACCEPTED = (
    "an image, a folder of images, a folder with one folder a class (or train/ and test/ with such), a .npy "
    "file of samples, or an .npz file with images and labels (and test_images and test_labels)"
)


@dataclass(frozen=True)
class Samples:
    """Samples in the form that a half takes; labels and names where there are any."""

    images: Any
    labels: Any = None
    names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        """How many there are."""
        return len(self.images)


def read_samples(
    source: str | Path, form: DataForm, split: str = "test", limit: int | None = None
) -> Samples:
    """Samples to predict. What has no parts is taken whole, whatever the `split`."""
    path = Path(source)
    if path.suffix == ".npy":
        return Samples(form.check(_load(path))[:limit])
    if path.suffix == ".npz":
        found = _from_npz(path, form, split)
        found = _from_npz(path, form, "train") if found is None else found
        if found is None:
            raise DataError(f"{path}: has no array 'images'; give {ACCEPTED}")
        labels = None if found.labels is None else found.labels[:limit]
        return Samples(found.images[:limit], labels)
    files = _plain(path)[:limit]
    if files:
        return Samples(_decode(files, form), names=tuple(file.name for file in files))
    found = _from_folder(path, form, split) or _from_folder(path, form, "train")
    if found is None:
        raise DataError(f"{path}: {'no samples' if path.exists() else 'nothing'} there; give {ACCEPTED}")
    return Samples(found.images[:limit], found.labels[:limit])


def read_labelled(source: str | Path, form: DataForm) -> tuple[Samples, Samples | None]:
    """A device's training samples, and its test samples if it has any."""
    path = Path(source)
    read = _from_npz if path.suffix == ".npz" else _from_folder
    train = read(path, form, "train")
    if train is None or train.labels is None:
        raise DataError(
            f"{path}: no labelled samples there; give a folder with one folder a class (or train/ and test/ "
            "with such), or an .npz file with images and labels"
        )
    test = read(path, form, "test")
    return train, None if test is None or test.labels is None else test


def _load(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: cannot be read ({error}); give {ACCEPTED}") from error


def _from_npz(path: Path, form: DataForm, split: str) -> Samples | None:
    """The part of an .npz file; None if it has none of that name."""
    prefix = "test_" if split == "test" else ""
    archive = _load(path)
    try:
        if f"{prefix}images" not in archive:
            return None
        images = form.check(archive[f"{prefix}images"])
        labels = archive.get(f"{prefix}labels")
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: cannot be read ({error}); write it with numpy.savez") from error
    if labels is None:
        return Samples(images)
    if labels.dtype.kind not in "iu" or labels.shape != (len(images),):
        raise DataError(f"{path}: {len(images)} samples need as many whole numbers as labels")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < form.classes:
        raise DataError(
            f"{path}: labels from {labels.min()} to {labels.max()} for the classes 0 to {form.classes - 1}"
        )
    return Samples(images, labels.astype(np.int64))


def _from_folder(path: Path, form: DataForm, split: str) -> Samples | None:
    """The part of a folder with class folders; None if there is none."""
    parts = (path / "train").is_dir()
    if not parts and split == "test":
        return None
    places = [
        path / name for name in (("train",) if split == "train" else ("val", "validation", "valid", "test"))
    ]
    root = next((place for place in places if place.is_dir()), None) if parts else path
    if root is None or not root.is_dir():
        return None
    folders = sorted(item for item in root.iterdir() if item.is_dir() and item.name[0] != ".")
    names = form.class_names or tuple(folder.name for folder in folders)
    unknown = [folder.name for folder in folders if folder.name not in names]
    if unknown or len(names) != form.classes:
        raise DataError(
            f"{root}: the folders {', '.join(f.name for f in folders)[:200]} are not the {form.classes} "
            "classes of the model; name them as the classes"
        )
    files = [(file, names.index(folder.name)) for folder in folders for file in _images(folder)]
    if not files:
        return None
    images = _decode([file for file, _ in files], form)
    return Samples(images, np.array([label for _, label in files], np.int64))


def _plain(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix.lower() in SUFFIXES else []
    return [file for file in sorted(path.iterdir()) if _is_image(file)] if path.is_dir() else []


def _images(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if _is_image(file))


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES and file.name[0] != "." and file.is_file()


def _decode(files: list[Path], form: DataForm) -> Any:
    shape = form.shape
    if not form.pixels or len(shape) != 3 or shape[1] != shape[2] or shape[0] not in (1, 3):
        raise DataError(f"the model takes samples of shape {list(shape)}, not square images")
    images = np.empty((len(files), *shape), np.uint8)
    for row, file in zip(images, files, strict=True):
        decode_image(row, file, str(file), shape[-1])
    return images
