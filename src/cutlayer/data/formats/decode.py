"""Decode images with Pillow on a pool of threads, straight into one uint8 tensor."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

from cutlayer.data.formats.encoded import Record
from cutlayer.data.load_options import Progress
from cutlayer.pixels import GREY, Pixels, decode_image, open_image

# Small enough for smooth progress, large enough that handing work to a thread costs nothing.
_CHUNK = 64


def probe(records: list[Record], size: int | None, channels: int | None) -> tuple[int, int, int]:
    """Return the [C, H, W] that all images shall have, judged by a few of them.

    The images are taken as grey only if all that were looked at are; should a coloured one turn up
    later, decoding stops and says so rather than drop its colours.
    """
    opened = [(open_image(record.source, record.where), record) for record in records]
    if channels is None:
        channels = 1 if all(image.mode in GREY for image, _ in opened) else 3
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
        decode_image(row, record.source, record.where, size)
