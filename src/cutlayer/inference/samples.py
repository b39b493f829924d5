"""Samples to predict: a data set, one image, or a folder of images that nobody has labelled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from cutlayer.data import Dataset, Inputs, load
from cutlayer.data.formats.decode import decode_all
from cutlayer.data.formats.encoded import Record
from cutlayer.data.load_options import Split
from cutlayer.data.spec import DataSpec
from cutlayer.errors import DataError
from cutlayer.pixels import SUFFIXES
from cutlayer.split.tensors import samples_of


@dataclass(frozen=True)
class Samples:
    """Samples as a model wants them; labels and names where there are any."""

    images: Inputs
    labels: Tensor | None = None
    names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        """How many there are."""
        return samples_of(self.images)


def samples(source: str, data_spec: DataSpec, split: Split, root: str | Path, limit: int | None) -> Samples:
    """Load samples in the shape that the model was trained on; images are scaled to it."""
    files = _plain_images(Path(source))[:limit]
    if files:
        return Samples(_decode(files, data_spec), names=tuple(file.name for file in files))
    square = data_spec.pixels and data_spec.shape[-1] == data_spec.shape[-2]
    found = load(
        source,
        split,
        root=root,
        size=data_spec.shape[-1] if square else None,
        channels=data_spec.shape[0] if data_spec.pixels and data_spec.shape[0] in (1, 3) else None,
        limit=limit,
    )
    if found.shape != data_spec.shape:
        raise DataError(
            f"{source}: samples have the shape {list(found.shape)}, but the model was trained on "
            f"{list(data_spec.shape)}"
        )
    inputs: Inputs = found.images if isinstance(found, Dataset) else found.batch(torch.arange(len(found)))[0]
    data_spec.form.check_inputs(inputs)
    labels = found.labels
    # Labels of other classes say nothing about this model's predictions.
    named = None not in (found.class_names, data_spec.class_names)
    same = found.form.target == data_spec.form.target and found.form.classed
    same = same and (not named or found.class_names == data_spec.class_names)
    return Samples(inputs, labels if same else None)


def _plain_images(path: Path) -> list[Path]:
    if path.is_file() and path.suffix.lower() in SUFFIXES:
        return [path]
    if not path.is_dir():
        return []
    return sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())


def _decode(files: list[Path], data_spec: DataSpec) -> Tensor:
    if not data_spec.pixels or len(data_spec.shape) != 3 or data_spec.shape[1] != data_spec.shape[2]:
        raise DataError(f"the model takes samples of shape {list(data_spec.shape)}, not square images")
    images = torch.empty(len(files), *data_spec.shape, dtype=torch.uint8)
    decode_all(images.numpy(), (Record(file, str(file)) for file in files), data_spec.shape[-1], None, None)
    return images
