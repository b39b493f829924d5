"""One section of an `ems` payload, from bytes to elements. All is checked before anything is written."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Buffer

from cutlayer.codecs.entropy.layout import MOST_STEP, Cursor, Section, parse, wrong
from cutlayer.codecs.entropy.section_shape import Geometry
from cutlayer.codecs.entropy.section_writer import as_float, as_floats
from cutlayer.codecs.kernels.dispatch import Kernels

LARGEST = (0x7F7FFFFF, 0x7BFF, 0x7F7F)  # the largest finite magnitude of each type of values, as bits

Array = NDArray[Any]


def read_section(
    cursor: Cursor,
    frame: Buffer,
    start: int,
    shape: Geometry,
    levels: int,
    means: bool,
    values: int,
    signed: bool,
    kernels: Kernels,
    largest: tuple[int, ...] = LARGEST,
    most_step: float = MOST_STEP,
) -> Callable[[Tensor], None]:
    """Decode levels and top values of the section at `start` in the frame; the rest is left to be called.

    No top value may be larger than `largest` (bits, of each type of values), and no step than `most_step`.
    """
    section = parse(cursor, shape, levels, means, largest[values], most_step)
    width = section.width + signed
    raw = _stream(cursor, frame, start, section.tops, width, kernels)
    code = raw >> 1 if signed else raw
    if int(code.max()) + section.low > largest[values]:
        raise wrong("a top value is too large, infinite or not a number")
    tops = as_floats(code + section.low, values)
    if signed:
        tops = torch.where(raw & 1 > 0, -tops, tops)
    found = _levels(cursor, frame, start, section, shape, kernels)
    starts = kernels.ems_starts(found, shape, section.levels, signed)
    marks, plain = starts[:, -1].tolist()
    if marks != section.tops:
        raise wrong(f"{marks} elements are marked, but there are {section.tops} top values")
    signs = _stream(cursor, frame, start, plain, 1, kernels) if signed else None
    if cursor.at != len(cursor.data):
        raise wrong("bytes follow its end")
    table = _table(section, values)
    return lambda out: kernels.ems_rebuild(found, shape, table, starts, tops, signs, out)


def _stream(cursor: Cursor, frame: Buffer, start: int, n: int, width: int, kernels: Kernels) -> Tensor:
    at = start + cursor.at
    cursor.take((n * width + 7) // 8)
    found: Tensor | None = kernels.ems_unpack(frame, at, n, width)
    if found is None:
        raise wrong("the unused bits at the end of a bit stream are not zero")
    return found


def _levels(
    cursor: Cursor, frame: Buffer, start: int, section: Section, shape: Geometry, kernels: Kernels
) -> Tensor:
    if section.model is None or section.tables is None:
        found = _stream(cursor, frame, start, shape.d, section.levels.bit_length(), kernels)
        if int(found.max()) > section.levels:
            raise wrong("a level is higher than there are levels")
        return found.to(torch.uint8)
    at = start + cursor.at
    cursor.take(2 * sum(section.words))
    decoded: Tensor | None = kernels.ems_decode(
        frame, at, section.words, shape, section.levels, section.model, section.tables
    )
    if decoded is None:
        raise wrong("a block of the mask does not end where it should")
    return decoded


def _table(section: Section, values: int) -> Array:
    """What each level stands for, by surroundings."""
    if section.means is None:
        topmin = np.float64(as_float(section.low, values))
        return (np.arange(section.levels) * topmin / np.float64(section.levels)).astype(np.float32)[None]
    return section.means.table()
