"""Interleaved rANS coding of levels: 32 lanes with states of their own share one stream of words.

In NumPy: a step is a dozen operations on at most 32 lanes, for which torch has too much overhead a call.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs.entropy.context_model import PREDICTIONS, ContextModel, level_shift, prediction_shift
from cutlayer.codecs.entropy.frequency_tables import SCALE, SCALE_BITS, FrequencyTables
from cutlayer.codecs.entropy.section_shape import LANES, SectionShape

LOW = 1 << 16  # states lie between this and 2^32 - 1
_FULL = 32 - SCALE_BITS  # a symbol of frequency f can be added to states below f * 2^_FULL

Array = NDArray[Any]


def lane_elements(shape: SectionShape, block: int) -> Array:
    """The element that each lane codes in each step: indices (steps, lanes); -1 where a lane has ended."""
    lanes = np.arange(block * LANES, min(shape.lanes, (block + 1) * LANES))
    first = lanes * shape.per_lane * shape.sample
    where = first[None, :] + np.arange(shape.per_lane * shape.sample)[:, None]
    return np.where(where < shape.d, where, -1)


def encode(
    levels: Array, predictions: Array, shape: SectionShape, tables: FrequencyTables
) -> tuple[bytes, list[int]]:
    """Encode all blocks. Returns their bytes, and the number of 16-bit words of each."""
    frequency = tables.frequencies.astype(np.uint64)
    before = frequency.cumsum(1) - frequency
    of = tables.class_of()[predictions]
    blocks = []
    for block in range(shape.blocks):
        where = lane_elements(shape, block)
        state = np.full(where.shape[1], LOW, np.uint64)
        words: list[Array] = []
        for step in where[::-1]:
            live = step >= 0
            cls, level = of[step], levels[step]
            f, c = frequency[cls, level], before[cls, level]
            full = live & (state >= f << np.uint64(_FULL))
            words.append((state[full] & np.uint64(0xFFFF))[::-1])
            s = np.where(full, state >> np.uint64(16), state)
            f = np.where(live, f, 1)
            state = np.where(live, ((s // f) << np.uint64(SCALE_BITS)) + s % f + c, s)
        stream = np.concatenate(words)[::-1].astype("<u2") if words else np.zeros(0, "<u2")
        blocks.append(state.astype("<u4").tobytes() + stream.tobytes())
    return b"".join(blocks), [len(b) // 2 for b in blocks]


def decode(
    data: bytes,
    words: tuple[int, ...],
    shape: SectionShape,
    levels: int,
    model: ContextModel,
    tables: FrequencyTables,
) -> Array | None:
    """Decode all blocks to levels, or None if no encoder could have written them."""
    symbol = np.stack([np.repeat(np.arange(levels + 1, dtype=np.uint8), f) for f in tables.frequencies])
    frequency = tables.frequencies.astype(np.uint64)
    before = frequency.cumsum(1) - frequency
    of, out, at = tables.class_of(), np.zeros(shape.d, np.uint8), 0
    for block, n in enumerate(words):
        where = lane_elements(shape, block)
        lanes = where.shape[1]
        stream = np.frombuffer(data, "<u2", n, at)
        at += 2 * n
        if n < 2 * lanes:
            return None
        state = stream[: 2 * lanes].copy().view("<u4").astype(np.uint64)
        if (state < LOW).any():
            return None
        read = 2 * lanes
        context = Context(shape, model, levels, lanes)
        for i, step in enumerate(where):
            live = step >= 0
            cls = of[context.prediction(i % shape.sample)]
            slot = (state % SCALE).astype(np.int64)
            level = symbol[cls, slot]
            f, c = frequency[cls, level], before[cls, level]
            state = np.where(live, f * (state >> np.uint64(SCALE_BITS)) + slot.astype(np.uint64) - c, state)
            empty = state < LOW
            wanted = int(empty.sum())
            if wanted > n - read:
                return None
            state[empty] = (state[empty] << np.uint64(16)) | stream[read : read + wanted]
            read += wanted
            context.add(i % shape.sample, level)
            out[step[live]] = level[live]
        if read != n or (state != LOW).any():
            return None
    return out


class Context:
    """The levels decoded so far in each lane's current sample, and the predictions from them."""

    def __init__(self, shape: SectionShape, model: ContextModel, levels: int, lanes: int) -> None:
        self.shape, self.model = shape, model
        self.level_shift, self.prediction_shift = level_shift(levels), prediction_shift(levels)
        # Planes are padded with zeros: neighbours beyond the border count as 0.
        self.planes = np.zeros((shape.channels, shape.height + 1, shape.width + 2, lanes), np.int64)

    def _position(self, i: int) -> tuple[int, int, int]:
        plane = self.shape.height * self.shape.width
        return i // plane, i % plane // self.shape.width + 1, i % self.shape.width + 1

    def prediction(self, i: int) -> Array:
        """The quantized prediction of the i-th element of a sample, in each lane."""
        c, y, x = self._position(i)
        row = c if self.model.rows > 1 else 0
        a, w = self.planes, self.model.weights[row].astype(np.int64)
        p = w[0] + w[1] * a[c, y, x - 1] + w[2] * a[c, y - 1, x]
        p = p + w[3] * a[c, y - 1, x - 1] + w[4] * a[c, y - 1, x + 1]
        for back, weight in zip(self.model.distance[row], self.model.parent[row], strict=True):
            if back:
                p = p + int(weight) * a[c - int(back), y, x]
        clipped: Array = np.clip(p >> self.prediction_shift, 0, PREDICTIONS - 1)
        return clipped

    def add(self, i: int, level: Array) -> None:
        """Take in the decoded level of the i-th element, in each lane."""
        c, y, x = self._position(i)
        self.planes[c, y, x] = level >> self.level_shift
