"""Make a data set from encoded images: select the split, decode once, keep in memory or on disk.

Images in files of their own can also be decoded each time that they are asked for.
"""

from __future__ import annotations

import hashlib
import math
import os
from pathlib import Path

import torch
from torch import Tensor

from cutlayer.data.arrays import ArrayDataset
from cutlayer.data.dataset import Dataset
from cutlayer.data.form import DataSource
from cutlayer.data.formats.cache import cached
from cutlayer.data.formats.decode import decode_all, probe
from cutlayer.data.formats.encoded import Records
from cutlayer.data.known_datasets import identify
from cutlayer.data.load_options import LoadOptions
from cutlayer.data.stratify import hold_out, stratified
from cutlayer.errors import DataError
from cutlayer.pixels import Pixels

# Images that are looked at to tell size and colour.
_PROBES = 8


class _DecodedAsNeeded:
    """Images that are decoded whenever they are asked for, as `Rows`."""

    def __init__(
        self, records: Records, chosen: Tensor, shape: tuple[int, ...], options: LoadOptions
    ) -> None:
        self._records = records
        self._chosen = chosen
        self._shape = shape
        self._options = options

    def __len__(self) -> int:
        return len(self._chosen)

    def take(self, indices: Tensor) -> Tensor:
        """See `Rows.take`."""
        images = torch.empty(len(indices), *self._shape, dtype=torch.uint8)
        found = self._records.read(self._chosen[indices])
        decode_all(images.numpy(), found, self._options.size, self._options.workers, None)
        return images


def assemble(
    path: Path, records: Records, held_out: bool, options: LoadOptions, *, any_order: bool = False
) -> DataSource:
    """Decode the requested split of the records into a data set.

    `any_order`: the records can be read one by one, so that they need not be decoded before they are used.
    """
    records.check()
    everything = torch.arange(len(records.labels))
    chosen = everything
    if held_out:
        chosen = hold_out(records.labels, options.split, options.test_fraction, options.split_seed, str(path))
    if options.limit is not None and options.limit < len(chosen):
        labels = records.labels[chosen]
        chosen = chosen[stratified(labels, options.limit, options.split_seed)]

    # From all records, not the chosen: train and test held out of them must come out alike.
    looked_at = everything[:: max(1, len(everything) // _PROBES)]
    shape = (
        len(chosen),
        *probe(list(records.read(looked_at)), options.size, options.channels),
    )

    if any_order and options.cache_dir is None and (options.lazy or _too_large(shape)):
        return ArrayDataset(
            _DecodedAsNeeded(records, chosen, shape[1:], options),
            records.labels[chosen],
            records.classes,
            class_names=records.class_names,
            name=identify(records.class_names) or path.stem,
            where=lambda index: records.where(int(chosen[index])),
        )

    def fill(out: Pixels) -> None:
        decode_all(out, records.read(chosen), options.size, options.workers, options.progress)

    if options.cache_dir is not None:
        # The chosen records stand for split, seed and limit, which only matter through them.
        digest = hashlib.sha256(chosen.numpy().tobytes()).hexdigest()
        settings = f"size={options.size} records={digest}"
        images = cached(options.cache_dir, records.files, settings, shape, fill)
    else:
        images = _allocate(shape, path)
        fill(images.numpy())
    return Dataset(
        images=images,
        labels=records.labels[chosen],
        classes=records.classes,
        class_names=records.class_names,
        name=identify(records.class_names) or path.stem,
    )


def _allocate(shape: tuple[int, ...], path: Path) -> Tensor:
    size, memory = math.prod(shape), _memory()
    if memory is not None and size > memory:
        raise DataError(
            f"{path}: {shape[0]} images of {'x'.join(map(str, shape[1:]))} take "
            f"{size / 1e9:.0f} GB, this machine has {memory / 1e9:.0f} GB; set cache_dir to keep "
            "them in a file that is read as needed, or ask for a smaller size or a limit"
        )
    return torch.empty(shape, dtype=torch.uint8)


def _too_large(shape: tuple[int, ...]) -> bool:
    """Whether decoded images would leave little memory for anything else."""
    memory = _memory()
    return memory is not None and 2 * math.prod(shape) > memory


def _memory() -> int | None:
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
