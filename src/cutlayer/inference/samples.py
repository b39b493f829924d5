"""Samples to predict: a data set, one image, a folder of images or a table that nobody has labelled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from cutlayer.config.schema import Config
from cutlayer.data import Dataset, Inputs, load
from cutlayer.data.formats.decode import decode_all
from cutlayer.data.formats.encoded import Record
from cutlayer.data.formats.table import load_features
from cutlayer.data.load_options import Split
from cutlayer.data.spec import DataSpec
from cutlayer.errors import DataError
from cutlayer.pixels import SUFFIXES
from cutlayer.protocol.build import load_settings
from cutlayer.split.tensors import samples_of


@dataclass(frozen=True)
class Samples:
    """Samples as a model wants them; targets and names where there are any."""

    images: Inputs
    targets: Tensor | None = None
    names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        """How many there are."""
        return samples_of(self.images)

    @property
    def labels(self) -> Tensor | None:
        """The targets, where they are classes."""
        classed = self.targets is not None and self.targets.dtype == torch.int64 and self.targets.dim() == 1
        return self.targets if classed else None


def samples(
    source: str, config: Config, data_spec: DataSpec, split: Split, root: str | Path, limit: int | None
) -> Samples:
    """Load samples in the form that the model was trained on; images are scaled to it.

    Columns of a table, tokens and the like are as the settings of the run have them.
    """
    files = _plain_images(Path(source))[:limit]
    if files:
        return Samples(_decode(files, data_spec), names=tuple(file.name for file in files))
    settings = load_settings(config)
    rows = load_features(Path(source.removeprefix("table:")), settings["target"], settings["features"])
    if rows is not None:
        data_spec.form.check_inputs(rows)
        return Samples(rows[:limit])
    square = data_spec.pixels and data_spec.shape[-1] == data_spec.shape[-2]
    images = {
        "size": data_spec.shape[-1] if square else None,
        "channels": data_spec.shape[0] if data_spec.pixels and data_spec.shape[0] in (1, 3) else None,
    }
    found = load(source, split, root=root, limit=limit, **settings | images)
    if found.shape != data_spec.shape:
        raise DataError(
            f"{source}: samples have the shape {list(found.shape)}, but the model was trained on "
            f"{list(data_spec.shape)}"
        )
    every = torch.arange(len(found))
    inputs: Inputs = found.images if isinstance(found, Dataset) else found.batch(every)[0]
    data_spec.form.check_inputs(inputs)
    # Targets of another form, or of other classes, say nothing about this model's predictions.
    named = None not in (found.class_names, data_spec.class_names)
    same = found.form.target == data_spec.form.target
    same = same and (not named or found.class_names == data_spec.class_names)
    if not same:
        return Samples(inputs)
    return Samples(inputs, found.labels if found.form.classed else found.batch(every)[1])


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
