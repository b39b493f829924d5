"""The compiled kernels of `ems` behind the surface of `kernels.Kernels`: addresses, no logic."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Buffer

from cutlayer import _native as _n
from cutlayer.codecs.entropy.context_model import FINE, NEIGHBOURS, PARENTS, Model, coarse, flat_model, grain
from cutlayer.codecs.entropy.frequency_tables import CLASSES, COST, WORTH, Tables
from cutlayer.codecs.entropy.least_squares import places
from cutlayer.codecs.entropy.section_shape import Geometry
from cutlayer.codecs.entropy.trial_rows import Rows
from cutlayer.codecs.kernels.native_memory import empty

_ELEMENTS_FOR_THREADS = 1 << 16
_ELEMENTS_FOR_LITTLE = 1 << 17  # where there is hardly anything to do for each: threads take time to wake up

Array = NDArray[Any]


def _threads(d: int, enough: int = _ELEMENTS_FOR_THREADS) -> int:
    return torch.get_num_threads() if d >= enough else 1


def _shape(shape: Geometry) -> list[int]:
    return [shape.d, shape.channels, shape.height, shape.width, shape.per_lane * shape.sample]


def _model(model: Model, most: int) -> tuple[list[int], int, int, int]:
    # The arrays live as long as the model, which the caller holds.
    where = (model.weights.ctypes.data, model.distance.ctypes.data, model.parent.ctypes.data)
    return [model.rows, model.distance.shape[1], coarse(most), grain(most)], *where


def ems_tops(x: Tensor, top: Any, row: int, values: int) -> tuple[Tensor, Tensor]:
    """See `kernels.Kernels`."""
    raw, where = torch.empty(2, top.k, dtype=torch.int64)
    at = (raw.data_ptr(), where.data_ptr(), _threads(x.shape[1]))
    _n.ems_tops(x[row].data_ptr(), top, row, values, *at)
    return raw, where


def ems_fit(levels: Tensor, shape: Geometry, rows: Rows, most: int, own: bool) -> Model:
    """See `kernels.Kernels`."""
    look = places(shape, rows, own)
    if look is None:
        return flat_model()
    count, parents = (shape.channels, min(PARENTS, shape.channels - 1)) if own else (1, 0)
    weights = np.empty((count, 1 + NEIGHBOURS), np.int8)
    distance, parent = np.empty((count, parents), np.uint8), np.empty((count, parents), np.int8)
    how = (_shape(shape), [*rows, look.stride, look.thin, look.count, coarse(most), own], parents)
    where = (weights.ctypes.data, distance.ctypes.data, parent.ctypes.data)
    _n.ems_fit(levels.data_ptr(), *how, *where, _threads(shape.channels * look.count))
    return Model(weights, distance, parent)


def ems_energy(x: Tensor) -> float:
    """See `kernels.Kernels`."""
    total: float = _n.ems_energy(x.data_ptr(), x.numel(), _threads(x.numel(), _ELEMENTS_FOR_LITTLE))
    return total


def ems_levels(x: Tensor, scale: float, levels: int, mark_from: float) -> Tensor:
    """See `kernels.Kernels`."""
    out = empty([x.numel()], torch.uint8)
    how = (scale, levels, mark_from)
    _n.ems_levels(x.data_ptr(), x.numel(), *how, out.data_ptr(), _threads(x.numel(), _ELEMENTS_FOR_LITTLE))
    return out


def ems_equal_levels(x: Tensor, topmin: float, levels: int, nearest: bool) -> Tensor:
    """See `kernels.Kernels`."""
    out = empty([x.numel()], torch.uint8)
    how = (topmin, levels, nearest)
    _n.ems_equal_levels(x.data_ptr(), x.numel(), *how, out.data_ptr(), _threads(x.numel()))
    return out


def ems_contexts(
    levels: Tensor, shape: Geometry, rows: Rows, model: Model, most: int
) -> tuple[Tensor, Array]:
    """See `kernels.Kernels`."""
    out = empty([shape.d], torch.uint8)
    counts = np.zeros((FINE, most + 1), np.int64)
    where = (out.data_ptr(), counts.ctypes.data, _threads(shape.d))
    _n.ems_contexts(levels.data_ptr(), _shape(shape), rows, *_model(model, most), most, *where)
    return out, counts


def ems_sums(
    x: Tensor, levels: Tensor, shape: Geometry, rows: Rows, scale: float, most: int, kinds: int
) -> tuple[Array, int]:
    """See `kernels.Kernels`."""
    out, squares = np.zeros((2, kinds, most + 1), np.int64), np.zeros(1, np.int64)
    where = (out.ctypes.data, squares.ctypes.data, _threads(shape.d))
    _n.ems_sums(x.data_ptr(), levels.data_ptr(), _shape(shape), rows, scale, most, kinds, *where)
    return out[:, :, :most], int(squares[0])


def ems_error(x: Tensor, levels: Tensor, shape: Geometry, scale: float, table: Array) -> int:
    """See `kernels.Kernels`."""
    kinds, most = table.shape
    known = np.full((kinds, most + 1), -1, np.int64)
    known[:, :most] = table
    what = (x.data_ptr(), levels.data_ptr(), _shape(shape), scale, most, kinds)
    total: int = _n.ems_error(*what, known.ctypes.data, _threads(shape.d))
    return total


def ems_strips(elements: Tensor, shape: Geometry, where: Array, rows: int) -> Tensor:
    """See `kernels.Kernels`."""
    out = torch.empty(len(where) * rows * shape.channels * shape.width, dtype=elements.dtype)
    what = (elements.data_ptr(), elements.element_size(), _shape(shape), where.ctypes.data, len(where), rows)
    _n.ems_strips(*what, out.data_ptr(), _threads(out.numel(), _ELEMENTS_FOR_LITTLE))
    return out


def ems_tables(histogram: Array) -> tuple[Tables, int]:
    """See `kernels.Kernels`."""
    symbols = histogram.shape[1]
    starts, frequencies = np.empty(FINE, np.int64), np.empty((FINE, symbols), np.int64)
    where = (starts.ctypes.data, frequencies.ctypes.data)
    classes, cost = _n.ems_tables(histogram.ctypes.data, symbols, CLASSES, WORTH, COST.ctypes.data, *where)
    return Tables(starts[:classes].tolist(), frequencies[:classes]), cost


def ems_encode(levels: Tensor, contexts: Tensor, shape: Geometry, tables: Tables) -> tuple[bytes, list[int]]:
    """See `kernels.Kernels`."""
    classes = tables.class_of()
    frequencies = np.ascontiguousarray(tables.frequencies)
    blocks = _n.ems_encode(
        levels.data_ptr(),
        contexts.data_ptr(),
        _shape(shape),
        *frequencies.shape,
        classes.ctypes.data,
        frequencies.ctypes.data,
        _threads(shape.d),
    )
    return b"".join(blocks), [len(b) // 2 for b in blocks]


def ems_decode(
    frame: Buffer,
    offset: int,
    words: tuple[int, ...],
    shape: Geometry,
    most: int,
    model: Model,
    tables: Tables,
) -> Tensor | None:
    """See `kernels.Kernels`."""
    data = np.frombuffer(memoryview(frame), np.uint8)
    classes = tables.class_of()
    frequencies = np.ascontiguousarray(tables.frequencies)
    out = empty([shape.d], torch.uint8)
    good = _n.ems_decode(
        data.ctypes.data + offset,
        list(words),
        _shape(shape),
        *_model(model, most),
        most,
        len(frequencies),
        classes.ctypes.data,
        frequencies.ctypes.data,
        out.data_ptr(),
        _threads(shape.d),
    )
    return out if good else None


def ems_pack(codes: Tensor, width: int) -> Buffer:
    """See `kernels.Kernels`."""
    codes = codes.contiguous()
    packed: bytes = _n.ems_pack(codes.data_ptr(), codes.numel(), width)
    return packed


def ems_unpack(frame: Buffer, offset: int, n: int, width: int) -> Tensor | None:
    """See `kernels.Kernels`."""
    data = np.frombuffer(memoryview(frame), np.uint8)
    out = torch.empty(n, dtype=torch.int64)
    return out if _n.ems_unpack(data.ctypes.data + offset, n, width, out.data_ptr()) else None


def ems_signs(x: Tensor, levels: Tensor, mark: int) -> bytes:
    """See `kernels.Kernels`."""
    packed: bytes = _n.ems_signs(x.data_ptr(), levels.data_ptr(), x.numel(), mark)
    return packed


def ems_starts(levels: Tensor, shape: Geometry, most: int, signed: bool) -> Tensor:
    """See `kernels.Kernels`."""
    starts = torch.empty(2, shape.samples + 1, dtype=torch.int64)
    where = (starts[0].data_ptr(), starts[1].data_ptr(), _threads(shape.d))
    _n.ems_starts(levels.data_ptr(), _shape(shape), most, signed, *where)
    return starts


def ems_rebuild(
    levels: Tensor,
    shape: Geometry,
    table: Array,
    starts: Tensor,
    tops: Tensor,
    signs: Tensor | None,
    out: Tensor,
) -> None:
    """See `kernels.Kernels`."""
    kinds, most = table.shape
    known = np.concatenate([table, np.zeros((kinds, 1), np.float32)], axis=1)
    tops = tops.contiguous()
    flags = signs.to(torch.uint8) if signs is not None else None
    _n.ems_rebuild(
        levels.data_ptr(),
        _shape(shape),
        known.ctypes.data,
        kinds,
        most,
        tops.data_ptr(),
        starts[0].data_ptr(),
        flags.data_ptr() if flags is not None else 0,
        starts[1].data_ptr(),
        out.data_ptr(),
        _threads(shape.d),
    )
