"""The compiled kernels of `ems`: passes addresses to the extension `cutlayer._native`."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
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
from cutlayer.codecs.kernels.native_memory import empty

_ELEMENTS_FOR_THREADS = 1 << 16
_ELEMENTS_FOR_CHEAP_LOOPS = 1 << 17  # loops with little work an element: more elements pay for waking threads

Array = NDArray[Any]


def _threads(d: int, enough: int = _ELEMENTS_FOR_THREADS) -> int:
    return torch.get_num_threads() if d >= enough else 1


def _shape(shape: SectionShape) -> list[int]:
    return [shape.d, shape.channels, shape.height, shape.width, shape.per_lane * shape.sample]


def _model(model: ContextModel, n_levels: int) -> tuple[list[int], int, int, int]:
    # The caller holds the model, and so keeps the arrays alive.
    where = (model.weights.ctypes.data, model.distance.ctypes.data, model.parent.ctypes.data)
    return [model.rows, model.distance.shape[1], level_shift(n_levels), prediction_shift(n_levels)], *where


def ems_top_values(x: Tensor, top: Any, row: int, values: int) -> tuple[Tensor, Tensor]:
    """See `codecs.reference`."""
    raw, where = torch.empty(2, top.k, dtype=torch.int64)
    at = (raw.data_ptr(), where.data_ptr(), _threads(x.shape[1]))
    _n.ems_top_values(x[row].data_ptr(), top, row, values, *at)
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
    where = (weights.ctypes.data, distance.ctypes.data, parent.ctypes.data)
    _n.ems_fit_weights(levels.data_ptr(), *how, *where, _threads(shape.channels * used.count))
    return ContextModel(weights, distance, parent)


def ems_energy(x: Tensor) -> float:
    """See `codecs.reference`."""
    total: float = _n.ems_energy(x.data_ptr(), x.numel(), _threads(x.numel(), _ELEMENTS_FOR_CHEAP_LOOPS))
    return total


def ems_quantize(x: Tensor, scale: float, n_levels: int, mark_from: float) -> Tensor:
    """See `codecs.reference`."""
    out = empty([x.numel()], torch.uint8)
    how = (scale, n_levels, mark_from)
    _n.ems_quantize(
        x.data_ptr(), x.numel(), *how, out.data_ptr(), _threads(x.numel(), _ELEMENTS_FOR_CHEAP_LOOPS)
    )
    return out


def ems_quantize_evenly(x: Tensor, topmin: float, n_levels: int, nearest: bool) -> Tensor:
    """See `codecs.reference`."""
    out = empty([x.numel()], torch.uint8)
    how = (topmin, n_levels, nearest)
    _n.ems_quantize_evenly(x.data_ptr(), x.numel(), *how, out.data_ptr(), _threads(x.numel()))
    return out


def ems_contexts(
    levels: Tensor, shape: SectionShape, rows: Rows, model: ContextModel, n_levels: int
) -> tuple[Tensor, Array]:
    """See `codecs.reference`."""
    out = empty([shape.d], torch.uint8)
    counts = np.zeros((PREDICTIONS, n_levels + 1), np.int64)
    where = (out.data_ptr(), counts.ctypes.data, _threads(shape.d))
    _n.ems_contexts(levels.data_ptr(), _shape(shape), rows, *_model(model, n_levels), n_levels, *where)
    return out, counts


def ems_level_sums(
    x: Tensor, levels: Tensor, shape: SectionShape, rows: Rows, scale: float, n_levels: int, activities: int
) -> tuple[Array, int]:
    """See `codecs.reference`."""
    out, squares = np.zeros((2, activities, n_levels + 1), np.int64), np.zeros(1, np.int64)
    where = (out.ctypes.data, squares.ctypes.data, _threads(shape.d))
    _n.ems_level_sums(
        x.data_ptr(), levels.data_ptr(), _shape(shape), rows, scale, n_levels, activities, *where
    )
    return out[:, :, :n_levels], int(squares[0])


def ems_squared_error(x: Tensor, levels: Tensor, shape: SectionShape, scale: float, table: Array) -> int:
    """See `codecs.reference`."""
    activities, n_levels = table.shape
    known = np.full((activities, n_levels + 1), -1, np.int64)
    known[:, :n_levels] = table
    what = (x.data_ptr(), levels.data_ptr(), _shape(shape), scale, n_levels, activities)
    total: int = _n.ems_squared_error(*what, known.ctypes.data, _threads(shape.d))
    return total


def ems_gather_rows(elements: Tensor, shape: SectionShape, where: Array, rows: int) -> Tensor:
    """See `codecs.reference`."""
    out = torch.empty(len(where) * rows * shape.channels * shape.width, dtype=elements.dtype)
    what = (elements.data_ptr(), elements.element_size(), _shape(shape), where.ctypes.data, len(where), rows)
    _n.ems_gather_rows(*what, out.data_ptr(), _threads(out.numel(), _ELEMENTS_FOR_CHEAP_LOOPS))
    return out


def ems_frequency_tables(histogram: Array) -> tuple[FrequencyTables, int]:
    """See `codecs.reference`."""
    symbols = histogram.shape[1]
    starts, frequencies = np.empty(PREDICTIONS, np.int64), np.empty((PREDICTIONS, symbols), np.int64)
    where = (starts.ctypes.data, frequencies.ctypes.data)
    classes, cost = _n.ems_frequency_tables(
        histogram.ctypes.data, symbols, MAX_CLASSES, MIN_ELEMENTS, COST.ctypes.data, *where
    )
    return FrequencyTables(starts[:classes].tolist(), frequencies[:classes]), cost


def ems_rans_encode(
    levels: Tensor, contexts: Tensor, shape: SectionShape, tables: FrequencyTables
) -> tuple[bytes, list[int]]:
    """See `codecs.reference`."""
    classes = tables.class_of()
    frequencies = np.ascontiguousarray(tables.frequencies)
    blocks = _n.ems_rans_encode(
        levels.data_ptr(),
        contexts.data_ptr(),
        _shape(shape),
        *frequencies.shape,
        classes.ctypes.data,
        frequencies.ctypes.data,
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
    out = empty([shape.d], torch.uint8)
    good = _n.ems_rans_decode(
        data.ctypes.data + offset,
        list(words),
        _shape(shape),
        *_model(model, n_levels),
        n_levels,
        len(frequencies),
        classes.ctypes.data,
        frequencies.ctypes.data,
        out.data_ptr(),
        _threads(shape.d),
    )
    return out if good else None


def ems_pack_bits(codes: Tensor, width: int) -> Buffer:
    """See `codecs.reference`."""
    codes = codes.contiguous()
    packed: bytes = _n.ems_pack_bits(codes.data_ptr(), codes.numel(), width)
    return packed


def ems_unpack_bits(frame: Buffer, offset: int, n: int, width: int) -> Tensor | None:
    """See `codecs.reference`."""
    data = np.frombuffer(memoryview(frame), np.uint8)
    out = torch.empty(n, dtype=torch.int64)
    return out if _n.ems_unpack_bits(data.ctypes.data + offset, n, width, out.data_ptr()) else None


def ems_pack_signs(x: Tensor, levels: Tensor, n_levels: int) -> bytes:
    """See `codecs.reference`."""
    packed: bytes = _n.ems_pack_signs(x.data_ptr(), levels.data_ptr(), x.numel(), n_levels)
    return packed


def ems_sample_offsets(levels: Tensor, shape: SectionShape, n_levels: int, signed: bool) -> Tensor:
    """See `codecs.reference`."""
    offsets = torch.empty(2, shape.samples + 1, dtype=torch.int64)
    where = (offsets[0].data_ptr(), offsets[1].data_ptr(), _threads(shape.d))
    _n.ems_sample_offsets(levels.data_ptr(), _shape(shape), n_levels, signed, *where)
    return offsets


def ems_dequantize(
    levels: Tensor,
    shape: SectionShape,
    table: Array,
    offsets: Tensor,
    tops: Tensor,
    signs: Tensor | None,
    out: Tensor,
) -> None:
    """See `codecs.reference`."""
    activities, n_levels = table.shape
    known = np.concatenate([table, np.zeros((activities, 1), np.float32)], axis=1)
    tops = tops.contiguous()
    flags = signs.to(torch.uint8) if signs is not None else None
    _n.ems_dequantize(
        levels.data_ptr(),
        _shape(shape),
        known.ctypes.data,
        activities,
        n_levels,
        tops.data_ptr(),
        offsets[0].data_ptr(),
        flags.data_ptr() if flags is not None else 0,
        offsets[1].data_ptr(),
        out.data_ptr(),
        _threads(shape.d),
    )
