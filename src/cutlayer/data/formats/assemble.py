"""From records that were found to a data set: choose, decode once, keep in memory or on disk."""

from __future__ import annotations

import hashlib
import math
import os
from pathlib import Path

import torch
from torch import Tensor

from cutlayer.data.dataset import Dataset
from cutlayer.data.formats.cache import cached
from cutlayer.data.formats.decode import Pixels, decode_all, probe
from cutlayer.data.formats.encoded import Records
from cutlayer.data.known import identify
from cutlayer.data.request import Request
from cutlayer.data.stratify import hold_out, stratified
from cutlayer.errors import DataError

# Images that are looked at to tell size and colour.
_PROBES = 8


def assemble(path: Path, records: Records, held_out: bool, request: Request) -> Dataset:
    """Decode the requested split of the records into a data set."""
    records.check()
    everything = torch.arange(len(records.labels))
    chosen = everything
    if held_out:
        chosen = hold_out(records.labels, request.split, request.test_fraction, request.split_seed, str(path))
    if request.limit is not None and request.limit < len(chosen):
        labels = records.labels[chosen]
        chosen = chosen[stratified(labels, request.limit, request.split_seed)]

    # From all records, not the chosen: train and test held out of them must come out alike.
    looked_at = everything[:: max(1, len(everything) // _PROBES)]
    shape = (
        len(chosen),
        *probe(list(records.read(looked_at)), request.size, request.channels),
    )

    def fill(out: Pixels) -> None:
        decode_all(out, records.read(chosen), request.size, request.workers, request.progress)

    if request.cache_dir is not None:
        # The chosen records stand for split, seed and limit, which only matter through them.
        digest = hashlib.sha256(chosen.numpy().tobytes()).hexdigest()
        settings = f"size={request.size} records={digest}"
        images = cached(request.cache_dir, records.files, settings, shape, fill)
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


def _memory() -> int | None:
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
