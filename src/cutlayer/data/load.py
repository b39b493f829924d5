"""Find a data set by name or by what a path holds, and load one split of it."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch.nn import functional as F

from cutlayer.data.arrays import ArrayDataset
from cutlayer.data.dataset import Dataset
from cutlayer.data.form import DataSource
from cutlayer.data.formats import folder, parquet
from cutlayer.data.formats.assemble import assemble
from cutlayer.data.formats.cifar import load_cifar
from cutlayer.data.formats.cifar_files import LAYOUTS, find_cifar
from cutlayer.data.formats.digits import load_digits
from cutlayer.data.formats.npz import is_npz, load_npz
from cutlayer.data.formats.table import is_table, load_table
from cutlayer.data.formats.text import is_text, load_text
from cutlayer.data.known_datasets import KNOWN
from cutlayer.data.load_options import LoadOptions, Progress, Split, TargetKind
from cutlayer.data.stratify import classes_or_zeros, stratified
from cutlayer.data.user_dataset import check_alike, load_user_dataset
from cutlayer.errors import DataError
from cutlayer.imports import is_import_name


@dataclass(frozen=True)
class Loader:
    """A kind of data on disk: how to recognize it, how to read it, and its layout for error messages."""

    holds: Callable[[Path], bool]
    load: Callable[[Path, LoadOptions], DataSource]
    layout: str


def _load_parquet(path: Path, options: LoadOptions) -> DataSource:
    return assemble(path, *parquet.find_records(path, options.split), options)


def _load_folder(path: Path, options: LoadOptions) -> DataSource:
    return assemble(path, *folder.find_records(path, options.split), options, any_order=True)


#: Every kind of data on disk, in the order in which a path is tried.
LOADERS = {
    "cifar": Loader(
        holds=lambda path: find_cifar(path) is not None,
        load=load_cifar,
        layout="an official CIFAR archive, its extracted folder, or the folder with either: "
        + ", ".join(layout.archive for layout in LAYOUTS),
    ),
    "npz": Loader(
        holds=is_npz,
        load=load_npz,
        layout="arrays of NumPy: an .npz file, or a folder of .npy files, with x_train, y_train, x_test and "
        "y_test, or x and y",
    ),
    "table": Loader(
        holds=is_table,
        load=load_table,
        layout="a table, .csv or .parquet, or a folder with train.csv and test.csv; data.target is a column",
    ),
    "text": Loader(holds=is_text, load=load_text, layout="a text, .txt"),
    "parquet": Loader(
        holds=lambda path: bool(parquet.find_shards(path)),
        load=_load_parquet,
        layout="Parquet as on the Hugging Face hub: train-*.parquet and test-* or validation-*, "
        "or one file; columns img or image, and label or fine_label",
    ),
    "folder": Loader(
        holds=folder.is_image_folder,
        load=_load_folder,
        layout="images in train/<class>/ and val/<class>/, or in <class>/ alone",
    ),
}

# Where a data set that is asked for by name may lie under the root.
_PLACES = {
    "cifar10": ("cifar10", "cifar-10"),
    "cifar100": ("cifar100", "cifar-100"),
    "imagenet": ("imagenet", "imagenet-1k", "ILSVRC2012"),
}


# Kinds of data that a source can name, as in text:PATH.
_BY_KIND = ("text", "table", "npz", "folder", "parquet")


def load(
    source: str | Path,
    split: Split = "train",
    *,
    root: str | Path = ".",
    size: int | None = None,
    channels: int | None = None,
    test_fraction: float = 0.1,
    split_seed: int = 0,
    limit: int | None = None,
    cache_dir: str | Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    lazy: bool = False,
    target: tuple[str, ...] = (),
    features: tuple[str, ...] = (),
    target_kind: TargetKind = "auto",
    tokens: Literal["characters", "bytes"] = "characters",
    context: int = 128,
    classes: int | None = None,
    ignore: int | None = None,
) -> DataSource:
    """Load the train or the test split of a data set.

    `source` is `digits`; a path; `cifar10`, `cifar100` or `imagenet`, looked for under `root`;
    one of these names with a path, as in `cifar10:/data/c10`; a kind of data with a path, as in
    `text:/data/book.txt`, `table:houses.csv` or `npz:data.npz`; or a user's own
    `package.module:dataset`. The kind of data at a path is recognized by its files. The other
    settings are those of `LoadOptions`.

        train = load("cifar-10-python.tar.gz")
        test = load("cifar-10-python.tar.gz", "test")
    """
    options = LoadOptions(
        split=split,
        size=size,
        channels=channels,
        test_fraction=test_fraction,
        split_seed=split_seed,
        limit=limit,
        cache_dir=None if cache_dir is None else Path(cache_dir),
        workers=workers,
        progress=progress,
        lazy=lazy,
        target=target,
        features=features,
        target_kind=target_kind,
        tokens=tokens,
        context=context,
        classes=classes,
        ignore=ignore,
    )
    return _finished(_load(str(source), Path(root), options), options)


def load_both(source: str | Path, **settings: Any) -> tuple[DataSource, DataSource]:
    """Load train and test with the settings of `load`, and make sure that they fit each other."""
    train = load(source, "train", **settings)
    # What a few images of the test part look like must not decide otherwise than the train part.
    if settings.get("channels") is None and train.form.pixels and train.shape[0] in (1, 3):
        settings["channels"] = train.shape[0]
    test = load(source, "test", **settings)
    if train.form.plain and test.form.plain and train.form != test.form:
        raise DataError(
            f"{source}: train has samples {list(train.shape)} of {train.form.outputs} classes, "
            f"test {list(test.shape)} of {test.form.outputs}; give a size that both are scaled to"
        )
    check_alike(train, test, source)
    return train, test


def _load(source: str, root: Path, options: LoadOptions) -> DataSource:
    if source == "digits":
        return load_digits(options)
    name, _, rest = source.partition(":")
    if name in _PLACES:
        path = Path(rest) if rest else _place(name, root)
        dataset = _load_path(path, options)
        expected = KNOWN[name].classes
        if expected is not None and dataset.form.outputs != expected:
            raise DataError(f"{path}: {dataset.form.outputs} classes, but {name} has {expected}")
        if not isinstance(dataset, Dataset | ArrayDataset):
            raise DataError(f"{path}: holds no images, which {name} has")
        return replace(dataset, name=name)
    if name in _BY_KIND and rest and not Path(source).exists():
        path = Path(rest) if Path(rest).is_absolute() or Path(rest).exists() else root / rest
        if not path.exists():
            raise DataError(f"{path.absolute()}: nothing there. Expected {LOADERS[name].layout}")
        return LOADERS[name].load(path, options)
    if is_import_name(source) and not Path(source).exists():
        try:
            train, test = load_user_dataset(source)
        except DataError as error:
            near = difflib.get_close_matches(name, [*_BY_KIND, *_PLACES], 1)
            if not near or not isinstance(error.__cause__, ModuleNotFoundError):
                raise
            raise DataError(f"{error} Or did you mean {near[0]}:{rest}?") from error
        return train if options.split == "train" else test
    return _load_path(Path(source), options)


def _load_path(path: Path, options: LoadOptions) -> DataSource:
    accepted = "".join(f"\n  {loader.layout}" for loader in LOADERS.values())
    if not path.exists():
        raise DataError(f"{path.absolute()}: nothing there. A data set is digits, or{accepted}")
    for loader in LOADERS.values():
        if loader.holds(path):
            return loader.load(path, options)
    raise DataError(f"{path.absolute()}: no data set that can be read. It may be{accepted}")


def _place(name: str, root: Path) -> Path:
    """Return where a known data set lies under the root; none is ever fetched from the network."""
    official = [x for layout in LAYOUTS if layout.name == name for x in (layout.folder, layout.archive)]
    choices = [root / place for place in (*_PLACES[name], *official)]
    for choice in choices:
        if choice.exists():
            return choice
    raise DataError(
        f"{name} is not under {root.absolute()}; looked for "
        f"{', '.join(choice.name for choice in choices)}. Fetch it there, or give its path"
    )


def _finished(dataset: DataSource, options: LoadOptions) -> DataSource:
    """Apply limit and size to data that were not decoded from records, which have them already."""
    if options.limit is not None and options.limit < len(dataset):
        labels = classes_or_zeros(dataset)
        dataset = dataset.select(stratified(labels, options.limit, options.split_seed))
    size = options.size
    if not isinstance(dataset, Dataset) or size is None or dataset.images.dtype != torch.uint8:
        return dataset
    images = dataset.images
    if images.shape[2:] == (size, size):
        return dataset
    scaled = [
        F.interpolate(piece.float(), (size, size), mode="bilinear", antialias=True)
        for piece in torch.split(images, 1024)
    ]
    return replace(dataset, images=torch.cat([piece.round().byte() for piece in scaled]))
