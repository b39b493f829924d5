"""The compiled kernels behind the surface of `kernels.Kernels`: addresses and thread counts, no logic."""

from typing import Any

import torch
from torch import Tensor
from typing_extensions import Buffer

from cutlayer import _native as _n
from cutlayer.codecs.kernels import native_dct as _transform
from cutlayer.codecs.kernels import native_ems as _ems
from cutlayer.codecs.kernels import native_memory as _memory

# Waking a helper costs tens of microseconds; smaller tensors are done by then.
_ELEMENTS_FOR_THREADS = 1 << 17

allocate = _n.allocate
empty = _memory.empty
put_bytes = _n.put_bytes
check_values = _n.check_values
ems_contexts = _ems.ems_contexts
ems_decode = _ems.ems_decode
ems_encode = _ems.ems_encode
ems_energy = _ems.ems_energy
ems_equal_levels = _ems.ems_equal_levels
ems_error = _ems.ems_error
ems_fit = _ems.ems_fit
ems_forward = _transform.ems_forward
ems_inverse = _transform.ems_inverse
ems_levels = _ems.ems_levels
ems_pack = _ems.ems_pack
ems_rebuild = _ems.ems_rebuild
ems_signs = _ems.ems_signs
ems_starts = _ems.ems_starts
ems_strips = _ems.ems_strips
ems_sums = _ems.ems_sums
ems_tables = _ems.ems_tables
ems_tops = _ems.ems_tops
ems_unpack = _ems.ems_unpack


def _threads(x: Tensor) -> int:
    return torch.get_num_threads() if x.numel() >= _ELEMENTS_FOR_THREADS else 1


def seal(frame: Any, start: int) -> bytes:
    """See `kernels.Kernels`."""
    return _n.seal(frame, start, torch.get_num_threads())


def checksum(frame: Buffer, start: int) -> int:
    """See `kernels.Kernels`."""
    return _n.checksum(frame, start, torch.get_num_threads())


def select_top(x: Tensor, k: int) -> Any:
    """See `kernels.Kernels`."""
    return _n.select_top(x.data_ptr(), *x.shape, k, _threads(x))


def ms_encode(
    x: Tensor,
    top: Any,
    bits: int,
    nearest: bool,
    signed: bool,
    values: int,
    frame: Any,
    offset: int,
) -> None:
    """See `kernels.Kernels`."""
    _n.ms_encode(x.data_ptr(), top, bits, nearest, signed, values, frame, offset, _threads(x))


def sparse_encode(
    x: Tensor,
    k: int,
    pick: int,
    alpha: float,
    coin: bool,
    seed: int,
    keys: bool,
    values: int,
    scale: float,
    frame: Any,
    offset: int,
) -> float:
    """See `kernels.Kernels`."""
    how = (pick, alpha, coin, seed, keys, values, scale)
    return _n.sparse_encode(x.data_ptr(), *x.shape, k, *how, frame, offset, _threads(x))


def ranges(x: Tensor) -> list[Any]:
    """See `kernels.Kernels`."""
    return _n.ranges(x.data_ptr(), *x.shape, _threads(x))


def qu_encode(
    x: Tensor,
    ranges: list[Any],
    bits: int,
    stochastic: bool,
    seed: int,
    own_range: bool,
    frame: Any,
    offset: int,
) -> None:
    """See `kernels.Kernels`."""
    how = (ranges, bits, stochastic, seed, own_range)
    _n.qu_encode(x.data_ptr(), x.shape[1], *how, frame, offset, _threads(x))


def km_histogram(row: Tensor, lo: float, hi: float) -> Tensor:
    """See `kernels.Kernels`."""
    bins = torch.zeros(1 << 16, dtype=torch.int64)
    _n.km_histogram(row.data_ptr(), row.numel(), lo, hi, bins.data_ptr())
    return bins


def km_encode(row: Tensor, lo: float, hi: float, cluster: bytes, bits: int, frame: Any, offset: int) -> None:
    """See `kernels.Kernels`."""
    _n.km_encode(row.data_ptr(), row.numel(), lo, hi, cluster, bits, frame, offset)


def ms_decode(frame: Buffer, offset: int, k: int, bits: int, signed: bool, values: int, out: Tensor) -> int:
    """See `kernels.Kernels`."""
    how = (k, bits, signed, values)
    return _n.ms_decode(frame, offset, *out.shape, *how, out.data_ptr(), _threads(out))


def sparse_decode(frame: Buffer, offset: int, k: int, keys: bool, values: int, out: Tensor) -> int:
    """See `kernels.Kernels`."""
    return _n.sparse_decode(frame, offset, *out.shape, k, keys, values, out.data_ptr(), _threads(out))


def qu_decode(frame: Buffer, offset: int, bits: int, own: tuple[float, float] | None, out: Tensor) -> int:
    """See `kernels.Kernels`."""
    lo, hi = own or (0.0, 0.0)
    at = (out.data_ptr(), _threads(out))
    return _n.qu_decode(frame, offset, *out.shape, bits, own is None, lo, hi, *at)


def km_decode(frame: Buffer, offset: int, bits: int, out: Tensor) -> int:
    """See `kernels.Kernels`."""
    return _n.km_decode(frame, offset, *out.shape, bits, out.data_ptr(), _threads(out))
