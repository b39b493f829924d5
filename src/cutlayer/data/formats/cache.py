"""Keep decoded images on disk, as one memory-mapped safetensors file for each split.

A mapped file is read page by page as batches need it, so a data set may be larger than memory.
Files of changed sources are not removed; the folder can be emptied at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cutlayer.errors import FileError
from cutlayer.files import atomic_path
from cutlayer.pixels import Pixels

# Part of every key: raise it when the same files would decode to other pixels.
_VERSION = 1


def cached(
    cache_dir: Path,
    files: tuple[Path, ...],
    settings: str,
    shape: tuple[int, ...],
    fill: Callable[[Pixels], None],
) -> Tensor:
    """Return the images of `shape` that `fill` writes, from the cache when it has them.

    The key covers the settings and each source file's path, size and time of change. The file
    gets its name only when it is complete, so a killed process leaves nothing that could be
    mistaken for a cache, and two processes that fill it at once do not disturb each other.
    """
    target = cache_dir / f"{_key(files, settings, shape)}.safetensors"
    header = _header(shape)
    size = len(header) + int(np.prod(shape))
    if not _is_whole(target, header, size):
        try:
            _write(target, header, size, shape, fill)
        except FileError as error:
            raise FileError(
                f"{cache_dir}: the image cache cannot be written ({error}); it needs "
                f"{size / 1e9:.1f} GB: choose another cache_dir or free some space"
            ) from error
    # Copy on write: the tensor can be handed to code that expects memory, the file never changes.
    return torch.from_numpy(np.memmap(target, np.uint8, "c", len(header), shape))


def _key(files: tuple[Path, ...], settings: str, shape: tuple[int, ...]) -> str:
    digest = hashlib.sha256(repr((_VERSION, settings, shape)).encode())
    for file in files:
        status = file.stat()
        digest.update(repr((str(file.resolve()), status.st_size, status.st_mtime_ns)).encode())
    return digest.hexdigest()[:32]


def _header(shape: tuple[int, ...]) -> bytes:
    """Return the start of a safetensors file that holds one uint8 tensor, `images`."""
    tensor = {"dtype": "U8", "shape": list(shape), "data_offsets": [0, int(np.prod(shape))]}
    text = json.dumps({"images": tensor}).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _is_whole(target: Path, header: bytes, size: int) -> bool:
    try:
        with target.open("rb") as file:
            return target.stat().st_size == size and file.read(len(header)) == header
    except OSError:
        # Absent or unreadable: writing it again will tell if something is wrong.
        return False


def _write(
    target: Path, header: bytes, size: int, shape: tuple[int, ...], fill: Callable[[Pixels], None]
) -> None:
    with atomic_path(target, parents=True) as temporary:
        with temporary.open("wb") as file:
            file.write(header)
            file.truncate(size)
            # Without the space reserved, a full disk would kill the process in mid-write.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
        images = np.memmap(temporary, np.uint8, "r+", len(header), shape)
        fill(images)
        images.flush()
