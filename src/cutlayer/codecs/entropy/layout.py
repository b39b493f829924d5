"""The byte layout of an `ems` section (FORMAT.md, "ems"): its header, written and parsed."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs.entropy.context_model import NEIGHBOURS, PARENTS, PREDICTIONS, ContextModel
from cutlayer.codecs.entropy.frequency_tables import MAX_CLASSES, SCALE, FrequencyTables
from cutlayer.codecs.entropy.section_shape import SectionShape
from cutlayer.errors import PayloadError

ACTIVITIES = 16  # values of an element's activity, where reconstruction points depend on it
MAX_LEVELS = 127
UNITS_PER_STEP = 64  # magnitudes are measured in fixed point, in 1/64 of a step
MAX_STEP = 2.0**120  # the largest level of the largest step must still be a float32
# The first byte of a section: how its mask is coded, or that it holds DCT coefficients or tokens.
STORED, CODED, DCT, TOKENS = 0, 1, 2, 3
# Rows of weights in a context model: one; one for each channel; one, with a constant for each channel.
ONE_ROW, ROW_PER_CHANNEL, SHARED_WEIGHTS = 0, 1, 2

Array = NDArray[Any]


@lru_cache
def level_centres(levels: int) -> Array:
    """The centre of each level, in 1/64 of a step."""
    found = np.arange(levels) * UNITS_PER_STEP
    found.setflags(write=False)  # the cached array is shared
    return found


@dataclass(frozen=True)
class ReconstructionPoints:
    """What each level decodes to, by the element's activity (the quantized sum of its neighbours' levels)."""

    step: float
    offsets: Array  # int8 (activities, levels): from the level's centre, in 1/64 of a step

    def units(self) -> Array:
        """Reconstruction points in 1/64 of a step (int64)."""
        found: Array = level_centres(self.offsets.shape[1]) + self.offsets.astype(np.int64)
        return found

    def values(self) -> Array:
        """Reconstruction points as float32."""
        unit = np.float32(np.float32(self.step) / np.float32(UNITS_PER_STEP))
        found: Array = self.units().astype(np.float32) * unit
        return found


@dataclass(frozen=True)
class SectionHeader:
    """What stands before the bit streams of a section."""

    levels: int
    tops: int  # number of top values
    low: int  # the smallest top magnitude, as bits of its type; with stochastic rounding, in steps
    width: int  # bits of a top value's distance from `low`
    points: ReconstructionPoints | None  # None: levels are equal parts of the smallest top value, as in `ms`
    model: ContextModel | None  # None: the mask is stored, not entropy-coded
    tables: FrequencyTables | None
    words: tuple[int, ...] = ()  # 16-bit words of each rANS block, its states included
    stochastic: bool = False  # levels decode to multiples of the step: only the step is stored, no points

    def to_bytes(self) -> bytes:
        """The header as it travels."""
        out = bytearray([CODED if self.model else STORED, self.levels])
        out += varint(self.tops) + varint(self.low)
        out.append(self.width)
        if self.points and self.stochastic:
            out += struct.pack("<f", self.points.step)
        elif self.points:
            out += struct.pack("<fB", self.points.step, len(self.points.offsets))
            out += self.points.offsets.astype(np.int8).tobytes()
        if self.model and self.tables:
            out += _model_bytes(self.model)
            out.append(len(self.tables.starts))
            out += bytes(self.tables.starts[1:])
            out += varints(self.tables.frequencies[:, :-1].ravel().tolist())
            out += varints(self.words)
        return bytes(out)


def _model_bytes(model: ContextModel) -> bytes:
    kind = SHARED_WEIGHTS if model.shared else ROW_PER_CHANNEL if model.rows > 1 else ONE_ROW
    rows = np.concatenate([model.weights.view(np.uint8), model.distance, model.parent.view(np.uint8)], axis=1)
    out = bytes([kind, model.distance.shape[1]])
    if model.shared:  # taken from the last channel, the only one that is sure to have all parents
        return out + rows[-1, 1:].tobytes() + rows[:, 0].tobytes()
    return out + rows.tobytes()


def varint(value: int) -> bytes:
    """An integer as an unsigned LEB128 varint."""
    return varints([value])


def varints(values: Iterable[int]) -> bytes:
    """Integers as varints, one after the other."""
    out = bytearray()
    for value in values:
        while value >= 0x80:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
    return bytes(out)


class ByteReader:
    """Reads untrusted bytes from front to back; every read is checked."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def take(self, n: int) -> memoryview:
        """The next n bytes."""
        if n > len(self.data) - self.at:
            raise malformed("it ends too early")
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
                        raise malformed("a number is not in its shortest form, or too long")
                if value > most:
                    raise malformed(f"a number is {value}, which is more than {most}")
                found.append(value)
        except IndexError:
            raise malformed("it ends too early") from None
        self.at = at
        return found

    def array(self, dtype: Any, *shape: int) -> Array:
        """The next bytes, copied into an array."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return np.frombuffer(self.take(size), dtype).reshape(shape).copy()


def parse_header(
    reader: ByteReader,
    shape: SectionShape,
    max_levels: int,
    rounding: str,
    max_bits: int,
    max_step: float = MAX_STEP,
) -> SectionHeader:
    """Read and check the header of a section; the reader then stands at its streams.

    `max_bits`: the largest value, as bits.
    """
    stochastic = rounding == "stochastic"
    coding, levels = reader.byte(), reader.byte()
    if coding > CODED or not 1 <= levels <= max_levels:
        raise malformed(f"coding {coding} with {levels} levels")
    tops = reader.varint(shape.d)
    low = reader.varint(max_bits)
    width = reader.byte()
    if (tops == 0 and not stochastic) or width > max_bits.bit_length():
        raise malformed(f"{tops} top values of {width} bits")
    points = None
    if stochastic:
        points = _multiples(reader, levels, max_step)
    elif rounding == "mean":
        points = _points(reader, levels, max_step)
    if coding == STORED:
        return SectionHeader(levels, tops, low, width, points, None, None, stochastic=stochastic)
    model = _model(reader, shape.channels)
    tables = _tables(reader, levels + 1)
    # Each lane has a state of two words, and no element takes more than one word.
    words = tuple(reader.varints(shape.blocks, 2 * shape.lanes + shape.d))
    return SectionHeader(levels, tops, low, width, points, model, tables, words, stochastic)


def multiples(step: float, levels: int) -> ReconstructionPoints:
    """The points of stochastic rounding: levels decode to multiples of the step."""
    return ReconstructionPoints(float(np.float32(step)), np.zeros((1, levels), np.int8))


def _multiples(reader: ByteReader, levels: int, max_step: float) -> ReconstructionPoints:
    (step,) = struct.unpack("<f", reader.take(4))
    if not 0 < step < max_step:
        raise malformed(f"a step of {step}")
    return multiples(step, levels)


def _points(reader: ByteReader, levels: int, max_step: float) -> ReconstructionPoints:
    step, activities = struct.unpack("<fB", reader.take(5))
    if not 0 < step < max_step or activities not in (1, ACTIVITIES):
        raise malformed(f"a step of {step} and {activities} activity classes")
    return ReconstructionPoints(step, reader.array(np.int8, activities, levels))


def _model(reader: ByteReader, channels: int) -> ContextModel:
    kind, parents = reader.byte(), reader.byte()
    if kind > SHARED_WEIGHTS or parents > PARENTS:
        raise malformed(f"{parents} parents of a channel")
    rows = channels if kind else 1
    width = 1 + NEIGHBOURS + 2 * parents
    if kind == SHARED_WEIGHTS:
        raw = np.empty((rows, width), np.uint8)
        raw[:, 1:] = reader.array(np.uint8, width - 1)
        raw[:, 0] = reader.array(np.uint8, rows)
    else:
        raw = reader.array(np.uint8, rows, width)
    weights, distance = raw[:, : 1 + NEIGHBOURS], raw[:, 1 + NEIGHBOURS : 1 + NEIGHBOURS + parents]
    before_all = distance.astype(np.int64) > np.arange(rows)[:, None]
    if kind == SHARED_WEIGHTS:
        distance[before_all] = 0
    elif before_all.any():
        raise malformed("a channel depends on one that does not exist")
    parent = raw[:, 1 + NEIGHBOURS + parents :]
    weights, distance, parent = (np.ascontiguousarray(a) for a in (weights, distance, parent))
    return ContextModel(weights.view(np.int8), distance, parent.view(np.int8), kind == SHARED_WEIGHTS)


def _tables(reader: ByteReader, symbols: int) -> FrequencyTables:
    classes = reader.byte()
    if not 1 <= classes <= MAX_CLASSES:
        raise malformed(f"{classes} classes")
    starts = [0, *reader.take(classes - 1)]
    if any(b <= a for a, b in pairwise(starts)) or starts[-1] >= PREDICTIONS:
        raise malformed("the classes are not in order")
    known = reader.varints(classes * (symbols - 1), SCALE)
    frequencies = np.array(known, np.int64).reshape(classes, symbols - 1)
    rest = SCALE - frequencies.sum(1, keepdims=True)
    if (rest < 0).any():
        raise malformed(f"frequencies add up to more than {SCALE}")
    return FrequencyTables(starts, np.concatenate([frequencies, rest], axis=1))


def malformed(what: str) -> PayloadError:
    """The error for a section whose bytes break the rules of FORMAT.md."""
    return PayloadError(
        f"a section is malformed: {what}; the frame was damaged or forged before it was sealed"
    )
