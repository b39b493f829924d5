"""The compiled kernels of `ems`: passes addresses to the extension `cutlayer._native`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from cutlayer import _native as _n
from cutlayer.codecs.entropy.context_model import (
    NEIGHBOURS,
    PARENTS,
    PREDICTIONS,
    ContextModel,
    default_model,
    level_shift,
    prediction_shift,
)
from cutlayer.codecs.entropy.frequency_tables import COST, MAX_CLASSES, MIN_ELEMENTS, FrequencyTables
from cutlayer.codecs.entropy.least_squares import subsample
from cutlayer.codecs.entropy.section_shape import SectionShape
from cutlayer.codecs.entropy.trial_rows import Rows
from cutlayer.codecs.kernels import threads
from cutlayer.codecs.kernels.native_memory import address, empty
from cutlayer.codecs.tensors import Tensor

_ELEMENTS_FOR_THREADS = 1 << 16
_ELEMENTS_FOR_CHEAP_LOOPS = 1 << 17  # loops with little work an element: more elements pay for waking threads

Array = NDArray[Any]


def _threads(d: int, enough: int = _ELEMENTS_FOR_THREADS) -> int:
    return threads.number() if d >= enough else 1


def _shape(shape: SectionShape) -> list[int]:
    return [shape.d, shape.channels, shape.height, shape.width, shape.per_lane * shape.sample]


def _model(model: ContextModel, n_levels: int) -> tuple[list[int], int, int, int]:
    # The caller holds the model, and so keeps the arrays alive.
    where = (address(model.weights), address(model.distance), address(model.parent))
    return [model.rows, model.distance.shape[1], level_shift(n_levels), prediction_shift(n_levels)], *where


def ems_top_values(x: Tensor, top: Any, row: int, values: int) -> tuple[Array, Tensor]:
    """See `codecs.reference`."""
    raw, where = np.empty((2, top.k), np.int64)
    at = (address(raw), address(where), _threads(x.shape[1]))
    _n.ems_top_values(address(x[row]), top, row, values, *at)
    return raw, where


def ems_fit_weights(
    levels: Tensor, shape: SectionShape, rows: Rows, n_levels: int, per_channel: bool
) -> ContextModel:
    """See `codecs.reference`."""
    used = subsample(shape, rows, per_channel)
    if used is None:
        return default_model()
    count, parents = (shape.channels, min(PARENTS, shape.channels - 1)) if per_channel else (1, 0)
    weights = np.empty((count, 1 + NEIGHBOURS), np.int8)
    distance, parent = np.empty((count, parents), np.uint8), np.empty((count, parents), np.int8)
    how = (
        _shape(shape),
        [*rows, used.stride, used.thin, used.count, level_shift(n_levels), per_channel],
        parents,
    )
    where = (address(weights), address(distance), address(parent))
    _n.ems_fit_weights(address(levels), *how, *where, _threads(shape.channels * used.count))
    return ContextModel(weights, distance, parent)


def ems_energy(x: Tensor) -> float:
    """See `codecs.reference`."""
    total: float = _n.ems_energy(address(x), x.size, _threads(x.size, _ELEMENTS_FOR_CHEAP_LOOPS))
    return total


def ems_quantize(x: Tensor, scale: float, n_levels: int, mark_from: float) -> Tensor:
    """See `codecs.reference`."""
    out = empty([x.size], np.uint8)
    how = (scale, n_levels, mark_from)
    _n.ems_quantize(address(x), x.size, *how, address(out), _threads(x.size, _ELEMENTS_FOR_CHEAP_LOOPS))
    return out


def ems_quantize_evenly(x: Tensor, topmin: float, n_levels: int, nearest: bool) -> Tensor:
    """See `codecs.reference`."""
    out = empty([x.size], np.uint8)
    how = (topmin, n_levels, nearest)
    _n.ems_quantize_evenly(address(x), x.size, *how, address(out), _threads(x.size))
    return out


def ems_contexts(
    levels: Tensor, shape: SectionShape, rows: Rows, model: ContextModel, n_levels: int
) -> tuple[Tensor, Array]:
    """See `codecs.reference`."""
    out = empty([shape.d], np.uint8)
    counts = np.zeros((PREDICTIONS, n_levels + 1), np.int64)
    where = (address(out), address(counts), _threads(shape.d))
    _n.ems_contexts(address(levels), _shape(shape), rows, *_model(model, n_levels), n_levels, *where)
    return out, counts


def ems_level_sums(
    x: Tensor, levels: Tensor, shape: SectionShape, rows: Rows, scale: float, n_levels: int, activities: int
) -> tuple[Array, int]:
    """See `codecs.reference`."""
    out, squares = np.zeros((2, activities, n_levels + 1), np.int64), np.zeros(1, np.int64)
    where = (address(out), address(squares), _threads(shape.d))
    _n.ems_level_sums(address(x), address(levels), _shape(shape), rows, scale, n_levels, activities, *where)
    return out[:, :, :n_levels], int(squares[0])


def ems_squared_error(x: Tensor, levels: Tensor, shape: SectionShape, scale: float, table: Array) -> int:
    """See `codecs.reference`."""
    activities, n_levels = table.shape
    known = np.full((activities, n_levels + 1), -1, np.int64)
    known[:, :n_levels] = table
    what = (address(x), address(levels), _shape(shape), scale, n_levels, activities)
    total: int = _n.ems_squared_error(*what, address(known), _threads(shape.d))
    return total


def ems_gather_rows(elements: Tensor, shape: SectionShape, where: Array, rows: int) -> Tensor:
    """See `codecs.reference`."""
    out = np.empty(len(where) * rows * shape.channels * shape.width, elements.dtype)
    what = (address(elements), elements.itemsize, _shape(shape), address(where), len(where), rows)
    _n.ems_gather_rows(*what, address(out), _threads(out.size, _ELEMENTS_FOR_CHEAP_LOOPS))
    return out


def ems_frequency_tables(histogram: Array) -> tuple[FrequencyTables, int]:
    """See `codecs.reference`."""
    symbols = histogram.shape[1]
    starts, frequencies = np.empty(PREDICTIONS, np.int64), np.empty((PREDICTIONS, symbols), np.int64)
    where = (address(starts), address(frequencies))
    classes, cost = _n.ems_frequency_tables(
        address(histogram), symbols, MAX_CLASSES, MIN_ELEMENTS, address(COST), *where
    )
    return FrequencyTables(starts[:classes].tolist(), frequencies[:classes]), cost


def ems_rans_encode(
    levels: Tensor, contexts: Tensor, shape: SectionShape, tables: FrequencyTables
) -> tuple[bytes, list[int]]:
    """See `codecs.reference`."""
    classes = tables.class_of()
    frequencies = np.ascontiguousarray(tables.frequencies)
    blocks = _n.ems_rans_encode(
        address(levels),
        address(contexts),
        _shape(shape),
        *frequencies.shape,
        address(classes),
        address(frequencies),
        _threads(shape.d),
    )
    return b"".join(blocks), [len(b) // 2 for b in blocks]


def ems_rans_decode(
    frame: Buffer,
    offset: int,
    words: tuple[int, ...],
    shape: SectionShape,
    n_levels: int,
    model: ContextModel,
    tables: FrequencyTables,
) -> Tensor | None:
    """See `codecs.reference`."""
    data = np.frombuffer(memoryview(frame), np.uint8)
    classes = tables.class_of()
    frequencies = np.ascontiguousarray(tables.frequencies)
    out = empty([shape.d], np.uint8)
    good = _n.ems_rans_decode(
        address(data) + offset,
        list(words),
        _shape(shape),
        *_model(model, n_levels),
        n_levels,
        len(frequencies),
        address(classes),
        address(frequencies),
        address(out),
        _threads(shape.d),
    )
    return out if good else None


def ems_pack_bits(codes: Array, width: int) -> Buffer:
    """See `codecs.reference`."""
    codes = np.ascontiguousarray(codes, np.int64)
    packed: bytes = _n.ems_pack_bits(address(codes), codes.size, width)
    return packed


def ems_unpack_bits(frame: Buffer, offset: int, n: int, width: int) -> Array | None:
    """See `codecs.reference`."""
    data = np.frombuffer(memoryview(frame), np.uint8)
    out = np.empty(n, np.int64)
    return out if _n.ems_unpack_bits(address(data) + offset, n, width, address(out)) else None


def ems_pack_signs(x: Tensor, levels: Tensor, n_levels: int) -> bytes:
    """See `codecs.reference`."""
    packed: bytes = _n.ems_pack_signs(address(x), address(levels), x.size, n_levels)
    return packed


def ems_sample_offsets(levels: Tensor, shape: SectionShape, n_levels: int, signed: bool) -> Tensor:
    """See `codecs.reference`."""
    offsets = np.empty((2, shape.samples + 1), np.int64)
    where = (address(offsets[0]), address(offsets[1]), _threads(shape.d))
    _n.ems_sample_offsets(address(levels), _shape(shape), n_levels, signed, *where)
    return offsets


def ems_dequantize(
    levels: Tensor,
    shape: SectionShape,
    table: Array,
    offsets: Tensor,
    tops: Array,
    signs: Array | None,
    out: Tensor,
) -> None:
    """See `codecs.reference`."""
    activities, n_levels = table.shape
    known = np.concatenate([table, np.zeros((activities, 1), np.float32)], axis=1)
    tops = np.ascontiguousarray(tops, np.float32)
    flags = signs.astype(np.uint8) if signs is not None else None
    _n.ems_dequantize(
        address(levels),
        _shape(shape),
        address(known),
        activities,
        n_levels,
        address(tops),
        address(offsets[0]),
        address(flags) if flags is not None else 0,
        address(offsets[1]),
        address(out),
        _threads(shape.d),
    )
