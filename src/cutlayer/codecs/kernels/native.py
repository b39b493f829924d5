"""The compiled kernels: passes addresses and thread counts to the extension `cutlayer._native`.

Each function implements the one of the same name in `interface.Kernels`.
"""

from typing import Any

import numpy as np
from typing_extensions import Buffer

from cutlayer import _native as _n
from cutlayer.codecs.kernels import native_dct as _dct
from cutlayer.codecs.kernels import native_ems as _ems
from cutlayer.codecs.kernels import native_memory as _memory
from cutlayer.codecs.kernels import native_sections as _sections
from cutlayer.codecs.kernels import native_stochastic as _stochastic
from cutlayer.codecs.kernels import threads
from cutlayer.codecs.kernels.native_memory import address
from cutlayer.codecs.tensors import Tensor

# Waking a thread costs tens of microseconds, in which one thread finishes a smaller tensor.
_ELEMENTS_FOR_THREADS = 1 << 17

allocate = _n.allocate
advise = _memory.advise
empty_like = _memory.empty_like
own = _memory.own
ems_contexts = _ems.ems_contexts
ems_rans_decode = _ems.ems_rans_decode
ems_rans_encode = _ems.ems_rans_encode
ems_energy = _ems.ems_energy
ems_quantize_evenly = _ems.ems_quantize_evenly
ems_squared_error = _ems.ems_squared_error
ems_fit_weights = _ems.ems_fit_weights
ems_encode_sections = _sections.ems_encode_sections
ems_encode_dct = _sections.ems_encode_dct
ems_decode_sections = _sections.ems_decode_sections
ems_dct_forward = _dct.ems_dct_forward
ems_dct_inverse = _dct.ems_dct_inverse
ems_quantize_stochastically = _stochastic.ems_quantize_stochastically
ems_stochastic_tops = _stochastic.ems_stochastic_tops
random_words = _stochastic.random_words
ems_quantize = _ems.ems_quantize
ems_pack_bits = _ems.ems_pack_bits
ems_dequantize = _ems.ems_dequantize
ems_pack_signs = _ems.ems_pack_signs
ems_sample_offsets = _ems.ems_sample_offsets
ems_gather_rows = _ems.ems_gather_rows
ems_level_sums = _ems.ems_level_sums
ems_frequency_tables = _ems.ems_frequency_tables
ems_top_values = _ems.ems_top_values
ems_unpack_bits = _ems.ems_unpack_bits


def _threads(x: Tensor) -> int:
    return threads.number() if x.size >= _ELEMENTS_FOR_THREADS else 1


def seal(frame: Any, start: int) -> bytes:
    """See `codecs.reference`."""
    return _n.seal(frame, start, threads.number())


def checksum(frame: Buffer, start: int) -> int:
    """See `codecs.reference`."""
    return _n.checksum(frame, start, threads.number())


def put_bytes(frame: Any, offset: int, data: Buffer) -> None:
    """See `codecs.reference`."""
    _n.put_bytes(frame, offset, data, threads.number())


def get_floats(frame: Buffer, offset: int, out: Tensor) -> None:
    """See `codecs.reference`."""
    _n.get_floats(frame, offset, out.size, address(out), threads.number())


def check_values(frame: Buffer, offset: int, n: int, values: int) -> int:
    """See `codecs.reference`."""
    return _n.check_values(frame, offset, n, values, threads.number())


def select_top(x: Tensor, k: int) -> Any:
    """See `codecs.reference`."""
    return _n.select_top(address(x), *x.shape, k, _threads(x))


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
    """See `codecs.reference`."""
    _n.ms_encode(address(x), top, bits, nearest, signed, values, frame, offset, _threads(x))


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
    """See `codecs.reference`."""
    how = (pick, alpha, coin, seed, keys, values, scale)
    return _n.sparse_encode(address(x), *x.shape, k, *how, frame, offset, _threads(x))


def ranges(x: Tensor) -> list[Any]:
    """See `codecs.reference`."""
    return _n.ranges(address(x), *x.shape, _threads(x))


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
    """See `codecs.reference`."""
    how = (ranges, bits, stochastic, seed, own_range)
    _n.qu_encode(address(x), x.shape[1], *how, frame, offset, _threads(x))


def km_histogram(row: Tensor, lo: float, hi: float) -> Tensor:
    """See `codecs.reference`."""
    bins = np.zeros(1 << 16, np.int64)
    _n.km_histogram(address(row), row.size, lo, hi, address(bins))
    return bins


def km_encode(row: Tensor, lo: float, hi: float, cluster: bytes, bits: int, frame: Any, offset: int) -> None:
    """See `codecs.reference`."""
    _n.km_encode(address(row), row.size, lo, hi, cluster, bits, frame, offset)


def ms_decode(frame: Buffer, offset: int, k: int, bits: int, signed: bool, values: int, out: Tensor) -> int:
    """See `codecs.reference`."""
    how = (k, bits, signed, values)
    return _n.ms_decode(frame, offset, *out.shape, *how, address(out), _threads(out))


def sparse_decode(frame: Buffer, offset: int, k: int, keys: bool, values: int, out: Tensor) -> int:
    """See `codecs.reference`."""
    return _n.sparse_decode(frame, offset, *out.shape, k, keys, values, address(out), _threads(out))


def qu_decode(frame: Buffer, offset: int, bits: int, own: tuple[float, float] | None, out: Tensor) -> int:
    """See `codecs.reference`."""
    lo, hi = own or (0.0, 0.0)
    at = (address(out), _threads(out))
    return _n.qu_decode(frame, offset, *out.shape, bits, own is None, lo, hi, *at)


def km_decode(frame: Buffer, offset: int, bits: int, out: Tensor) -> int:
    """See `codecs.reference`."""
    return _n.km_decode(frame, offset, *out.shape, bits, address(out), _threads(out))
