"""Decode images with Pillow on a pool of threads, straight into one uint8 tensor."""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from cutlayer.data.formats.encoded import Record
from cutlayer.data.load_options import Progress
from cutlayer.errors import DataError
from cutlayer.imports import need

Pixels = npt.NDArray[np.uint8]

# Small enough for smooth progress, large enough that handing work to a thread costs nothing.
_CHUNK = 64

_GREY = {"1", "L"}
# Pillow would clip the 16- and 32-bit modes to a byte without a word.
_DEEP = ("I", "F")


def probe(records: list[Record], size: int | None, channels: int | None) -> tuple[int, int, int]:
    """Return the [C, H, W] that all images shall have, judged by a few of them.

    The images are taken as grey only if all that were looked at are; should a coloured one turn up
    later, decoding stops and says so rather than drop its colours.
    """
    opened = [(_open(record), record) for record in records]
    if channels is None:
        channels = 1 if all(image.mode in _GREY for image, _ in opened) else 3
    width, height = opened[0][0].size if size is None else (size, size)
    return channels, height, width


def decode_all(
    out: Pixels,
    records: Iterator[Record],
    size: int | None,
    workers: int | None,
    progress: Progress | None,
) -> None:
    """Decode every record into its row of `out` [N, C, H, W].

    Pillow releases the interpreter lock while it decodes, so threads suffice. Only a few chunks
    are under way at any time: encoded images do not pile up in memory. The error of the first
    damaged record, in order, is the one that is raised.
    """
    workers = workers or _processors()
    pending: deque[tuple[Future[None], int]] = deque()
    start = 0
    with ThreadPoolExecutor(workers) as pool:
        try:
            while chunk := list(islice(records, _CHUNK)):
                rows = out[start : start + len(chunk)]
                start += len(chunk)
                pending.append((pool.submit(_decode_chunk, rows, chunk, size), start))
                if len(pending) > 2 * workers:
                    _finish(pending, progress, len(out))
            while pending:
                _finish(pending, progress, len(out))
        except BaseException:
            for future, _ in pending:
                future.cancel()
            raise


def _processors() -> int:
    # What this process may use, which in a container is less than what the machine has.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _finish(pending: deque[tuple[Future[None], int]], progress: Progress | None, total: int) -> None:
    future, done = pending.popleft()
    future.result()
    if progress is not None:
        progress(done, total)


def _decode_chunk(rows: Pixels, chunk: list[Record], size: int | None) -> None:
    for row, record in zip(rows, chunk, strict=True):
        _decode(row, record, size)


def _decode(row: Pixels, record: Record, size: int | None) -> None:
    channels, height, width = row.shape
    image = _open(record)
    if channels == 1 and image.mode not in _GREY:
        raise DataError(
            f"{record.where}: a coloured image ({image.mode}) among grey ones; load with channels=3"
        )
    if size is None and image.size != (width, height):
        raise DataError(
            f"{record.where}: {image.size[0]}x{image.size[1]} among images of {width}x{height}; "
            "give a size to scale all images to"
        )
    try:
        if size is not None and image.size != (size, size):
            # JPEG can decode at a fraction of its size, which is most of the time saved.
            image.draft("L" if channels == 1 else "RGB", (2 * size, 2 * size))
            image = _centre(image.convert("L" if channels == 1 else "RGB"), size)
        pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    except Exception as error:
        # Decoders raise whatever a damaged file makes them stumble over.
        raise _damaged(record, error) from error
    row[...] = pixels if channels == 1 else pixels.transpose(2, 0, 1)


def _open(record: Record) -> Any:
    pillow = need("PIL.Image", "decoding images")
    try:
        stream = record.source
        image = pillow.open(io.BytesIO(stream if isinstance(stream, bytes) else stream.read_bytes()))
    except Exception as error:
        raise _damaged(record, error) from error
    if image.mode.startswith(_DEEP):
        raise DataError(f"{record.where}: pixels of mode {image.mode}; only 8-bit images are read")
    return image


def _centre(image: Any, size: int) -> Any:
    """Scale the shortest side to `size` and cut out the centre, as for ImageNet's validation."""
    width, height = image.size
    scale = size / min(width, height)
    wide, high = max(size, round(width * scale)), max(size, round(height * scale))
    left, top = (wide - size) // 2, (high - size) // 2
    bilinear = need("PIL.Image", "decoding images").Resampling.BILINEAR
    return image.resize((wide, high), bilinear).crop((left, top, left + size, top + size))


def _damaged(record: Record, error: Exception) -> DataError:
    # Pillow's message for unknown formats shows a memory address and nothing else.
    reason = "unknown format" if type(error).__name__ == "UnidentifiedImageError" else error
    return DataError(f"{record.where}: cannot be decoded as an image ({reason}); replace or remove it")
