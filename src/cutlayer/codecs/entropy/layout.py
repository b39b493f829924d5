"""A section of an `ems` payload as bytes (FORMAT.md, "ems"): what stands before and between the streams."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs.entropy.context_model import FINE, NEIGHBOURS, PARENTS, Model
from cutlayer.codecs.entropy.frequency_tables import CLASSES, SCALE, Tables
from cutlayer.codecs.entropy.section_shape import Geometry
from cutlayer.errors import PayloadError

SURROUNDINGS = 16  # of an element, where reconstruction tells them apart
MOST_LEVELS = 127
PARTS = 64  # of a step, in which elements are measured
MOST_STEP = 2.0**120  # the largest level of the largest step must stay a float32
STORED, CODED = 0, 1
TRANSFORMED = 2  # what follows is the coefficients' own section
ONE, OWN, SHARED = 0, 1, 2  # rows of weights: one, one for each channel, one with constants for each channel

Array = NDArray[Any]


@lru_cache
def middle(levels: int) -> Array:
    """Of each level, in parts of a step."""
    found = np.arange(levels) * PARTS
    found.setflags(write=False)  # all share it
    return found


@dataclass(frozen=True)
class Means:
    """Reconstruction at the means of levels: `offsets` (surroundings, levels) in 1/64 of a step."""

    step: float
    offsets: Array  # int8

    def parts(self) -> Array:
        """Where levels are decoded to, in 1/64 of a step (int64)."""
        found: Array = middle(self.offsets.shape[1]) + self.offsets.astype(np.int64)
        return found

    def table(self) -> Array:
        """The same as float32 values."""
        found: Array = self.parts().astype(np.float32) * np.float32(np.float32(self.step) / np.float32(PARTS))
        return found


@dataclass(frozen=True)
class Section:
    """All of a section but its streams."""

    levels: int
    tops: int
    low: int  # the smallest top magnitude, as bits of its type
    width: int  # bits of a top value beyond that
    means: Means | None  # none: levels are equal parts of the smallest top value, as in `ms`
    model: Model | None  # none: the mask is stored
    tables: Tables | None
    words: tuple[int, ...] = ()  # 16-bit words of each block, its states included


def head(section: Section) -> bytes:
    """The bytes before the streams."""
    out = bytearray([CODED if section.model else STORED, section.levels])
    out += varint(section.tops) + varint(section.low)
    out.append(section.width)
    if section.means:
        out += struct.pack("<fB", section.means.step, len(section.means.offsets))
        out += section.means.offsets.astype(np.int8).tobytes()
    if section.model and section.tables:
        found = section.tables
        out += _model_bytes(section.model)
        out.append(len(found.starts))
        out += bytes(found.starts[1:])
        out += varints(found.frequencies[:, :-1].ravel().tolist())
        out += varints(section.words)
    return bytes(out)


def _model_bytes(model: Model) -> bytes:
    kind = SHARED if model.shared else OWN if model.rows > 1 else ONE
    rows = np.concatenate([model.weights.view(np.uint8), model.distance, model.parent.view(np.uint8)], axis=1)
    out = bytes([kind, model.distance.shape[1]])
    if model.shared:  # the last channel has all parents
        return out + rows[-1, 1:].tobytes() + rows[:, 0].tobytes()
    return out + rows.tobytes()


def varint(value: int) -> bytes:
    """FORMAT.md's varint."""
    return varints([value])


def varints(values: Iterable[int]) -> bytes:
    """Several of them."""
    out = bytearray()
    for value in values:
        while value >= 0x80:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
    return bytes(out)


class Cursor:
    """Reads what a stranger wrote."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def take(self, n: int) -> memoryview:
        """The next n bytes."""
        if n > len(self.data) - self.at:
            raise wrong("it ends too early")
        self.at += n
        return self.data[self.at - n : self.at]

    def byte(self) -> int:
        """The next byte."""
        return self.take(1)[0]

    def varint(self, most: int) -> int:
        """The next varint, which must not exceed `most`."""
        return self.varints(1, most)[0]

    def varints(self, n: int, most: int) -> list[int]:
        """The next n varints, none of which may exceed `most`."""
        data, at, found = self.data, self.at, []
        try:
            for _ in range(n):
                value, shift = data[at], 7
                at += 1
                if value >= 0x80:
                    value &= 0x7F
                    while (byte := data[at]) >= 0x80 and shift < 35:
                        value |= (byte & 0x7F) << shift
                        shift += 7
                        at += 1
                    value |= byte << shift
                    at += 1
                    if byte == 0 or byte >= 0x80:
                        raise wrong("a number is not in its shortest form, or too long")
                if value > most:
                    raise wrong(f"a number is {value}, which is more than {most}")
                found.append(value)
        except IndexError:
            raise wrong("it ends too early") from None
        self.at = at
        return found

    def array(self, dtype: Any, *shape: int) -> Array:
        """The next bytes as an array of its own."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return np.frombuffer(self.take(size), dtype).reshape(shape).copy()


def parse(
    cursor: Cursor,
    shape: Geometry,
    most_levels: int,
    means: bool,
    largest: int,
    most_step: float = MOST_STEP,
) -> Section:
    """Read and check a section's head; the streams follow at the cursor. `largest`: of all value bits."""
    coding, levels = cursor.byte(), cursor.byte()
    if coding > CODED or not 1 <= levels <= most_levels:
        raise wrong(f"coding {coding} with {levels} levels")
    tops = cursor.varint(shape.d)
    low = cursor.varint(largest)
    width = cursor.byte()
    if tops == 0 or width > largest.bit_length():
        raise wrong(f"{tops} top values of {width} bits")
    found = _means(cursor, levels, most_step) if means else None
    if coding == STORED:
        return Section(levels, tops, low, width, found, None, None)
    model = _model(cursor, shape.channels)
    tables = _tables(cursor, levels + 1)
    # Each lane has two words of state, and no element takes more than one word.
    words = tuple(cursor.varints(shape.blocks, 2 * shape.lanes + shape.d))
    return Section(levels, tops, low, width, found, model, tables, words)


def _means(cursor: Cursor, levels: int, most_step: float) -> Means:
    step, surroundings = struct.unpack("<fB", cursor.take(5))
    if not 0 < step < most_step or surroundings not in (1, SURROUNDINGS):
        raise wrong(f"a step of {step} and {surroundings} kinds of surroundings")
    return Means(step, cursor.array(np.int8, surroundings, levels))


def _model(cursor: Cursor, channels: int) -> Model:
    kind, parents = cursor.byte(), cursor.byte()
    if kind > SHARED or parents > PARENTS:
        raise wrong(f"{parents} parents of a channel")
    rows = channels if kind else 1
    width = 1 + NEIGHBOURS + 2 * parents
    if kind == SHARED:
        raw = np.empty((rows, width), np.uint8)
        raw[:, 1:] = cursor.array(np.uint8, width - 1)
        raw[:, 0] = cursor.array(np.uint8, rows)
    else:
        raw = cursor.array(np.uint8, rows, width)
    weights, distance = raw[:, : 1 + NEIGHBOURS], raw[:, 1 + NEIGHBOURS : 1 + NEIGHBOURS + parents]
    before_all = distance.astype(np.int64) > np.arange(rows)[:, None]
    if kind == SHARED:
        distance[before_all] = 0
    elif before_all.any():
        raise wrong("a channel depends on one that does not exist")
    parent = raw[:, 1 + NEIGHBOURS + parents :]
    weights, distance, parent = (np.ascontiguousarray(a) for a in (weights, distance, parent))
    return Model(weights.view(np.int8), distance, parent.view(np.int8), kind == SHARED)


def _tables(cursor: Cursor, symbols: int) -> Tables:
    classes = cursor.byte()
    if not 1 <= classes <= CLASSES:
        raise wrong(f"{classes} classes")
    starts = [0, *cursor.take(classes - 1)]
    if any(b <= a for a, b in pairwise(starts)) or starts[-1] >= FINE:
        raise wrong("the classes are not in order")
    known = cursor.varints(classes * (symbols - 1), SCALE)
    frequencies = np.array(known, np.int64).reshape(classes, symbols - 1)
    rest = SCALE - frequencies.sum(1, keepdims=True)
    if (rest < 0).any():
        raise wrong(f"frequencies add up to more than {SCALE}")
    return Tables(starts, np.concatenate([frequencies, rest], axis=1))


def wrong(what: str) -> PayloadError:
    """The error for a section that contradicts itself."""
    return PayloadError(
        f"a section is malformed: {what}; the frame was damaged or forged before it was sealed"
    )
