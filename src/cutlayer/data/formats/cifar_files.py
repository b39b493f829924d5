"""Where the official CIFAR files are: packed or extracted, in the Python or the binary layout."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cutlayer.errors import DataError

# The largest official file is CIFAR-100's train, 155 MB; a bigger one is not CIFAR.
_LARGEST = 1 << 29


@dataclass(frozen=True)
class Layout:
    """One official way to lay out the files."""

    name: str
    classes: int
    folder: str
    archive: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    names_file: str
    names_key: str | None  # None where the names are lines of text
    labels_key: str | None  # None where records are binary
    label_bytes: int  # that stand before the pixels of a binary record; the last is the label

    @property
    def binary(self) -> bool:
        """Whether the files hold fixed-size records rather than a pickle."""
        return self.labels_key is None


_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))

LAYOUTS = (
    Layout(
        name="cifar10",
        classes=10,
        folder="cifar-10-batches-py",
        archive="cifar-10-python.tar.gz",
        train=_BATCHES,
        test=("test_batch",),
        names_file="batches.meta",
        names_key="label_names",
        labels_key="labels",
        label_bytes=0,
    ),
    Layout(
        name="cifar10",
        classes=10,
        folder="cifar-10-batches-bin",
        archive="cifar-10-binary.tar.gz",
        train=tuple(f"{name}.bin" for name in _BATCHES),
        test=("test_batch.bin",),
        names_file="batches.meta.txt",
        names_key=None,
        labels_key=None,
        label_bytes=1,
    ),
    Layout(
        name="cifar100",
        classes=100,
        folder="cifar-100-python",
        archive="cifar-100-python.tar.gz",
        train=("train",),
        test=("test",),
        names_file="meta",
        names_key="fine_label_names",
        labels_key="fine_labels",
        label_bytes=0,
    ),
    Layout(
        name="cifar100",
        classes=100,
        folder="cifar-100-binary",
        archive="cifar-100-binary.tar.gz",
        train=("train.bin",),
        test=("test.bin",),
        names_file="fine_label_names.txt",
        names_key=None,
        labels_key=None,
        label_bytes=2,  # coarse, then fine
    ),
)


def find_cifar(path: Path) -> tuple[Path, Layout] | None:
    """Return where CIFAR files are, at or directly under `path`, and in which layout."""
    with _naming(path):
        if path.is_file():
            if not path.name.endswith((".tar.gz", ".tgz", ".tar")):
                return None
            with tarfile.open(path) as archive:
                layout = _recognize(Path(item.name).name for item in archive if item.isfile())
            return (path, layout) if layout else None
        layout = _recognize(item.name for item in sorted(path.iterdir()) if item.is_file())
        if layout:
            return path, layout
        for layout in LAYOUTS:
            if (path / layout.folder).is_dir():
                return path / layout.folder, layout
            if (path / layout.archive).is_file():
                return path / layout.archive, layout
        return None


def read_files(place: Path, names: set[str]) -> dict[str, bytes]:
    """Return the content of the named files, from a folder or in one pass over an archive.

    An archive is never extracted, so no path inside it is ever used as a path.
    """
    files: dict[str, bytes] = {}
    with _naming(place):
        if place.is_dir():
            return {name: (place / name).read_bytes() for name in names if (place / name).is_file()}
        with tarfile.open(place) as archive:
            for item in archive:
                name = Path(item.name).name
                if not item.isfile() or name not in names:
                    continue
                if item.size > _LARGEST:
                    raise DataError(f"{place}: {name} claims {item.size} bytes: this is not CIFAR")
                stream = archive.extractfile(item)
                files[name] = stream.read() if stream else b""
    return files


def _recognize(names: Iterable[str]) -> Layout | None:
    """Recognize a layout as soon as the names leave no doubt: listing an archive unpacks it.

    CIFAR-100's `train` and `test` are common names, so they count only beside its `meta`.
    """
    seen: set[str] = set()
    for name in names:
        seen.add(name)
        for layout in LAYOUTS:
            known = seen.intersection(layout.train + layout.test)
            if known and (layout.names_file in seen or known.isdisjoint({"train", "test"})):
                return layout
    return None


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn what tarfile, gzip and the system raise into an error that names the file."""
    try:
        yield
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{path}: cannot be read ({error}); it is damaged or incomplete, fetch it again"
        ) from error
