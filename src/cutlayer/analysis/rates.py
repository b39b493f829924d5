"""Codecs of equal rate, by the paper's equations: q1 d = q2 d + f k2 = d + f k1, with f = 32."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cutlayer.codecs import Codec, codec
from cutlayer.errors import ParameterError

FLOAT_BITS = 32
KEY_BITS = 32


def rate(which: Codec | str, shape: Sequence[int]) -> float:
    """Bits an element on the wire, without the header, for a tensor that has no negative values."""
    return codec(which).bits_per_element(tuple(shape))


def at_rate(name: str, bits: float) -> Codec:
    """The codec of a family (`qu`, `sp`, `rt`, `ms`, `ms-nearest`) that sends so many bits an element.

    `ms` takes the widest mask that leaves bits for top values; `qu` takes whole bits, rounded down. The
    others keep as many values as fit with a mask or, below two bits, with keys.

    >>> str(at_rate("sp", 2.32))
    'sp:ratio=0.95875'
    """
    if not (math.isfinite(bits) and 1 < bits <= 16):
        raise ParameterError(f"a rate of {bits} bits an element: expected more than 1, at most 16")
    if name == "qu":
        return codec(f"qu:bits={int(bits)}")
    if name in ("sp", "rt"):
        kept = max((bits - 1) / FLOAT_BITS, bits / (FLOAT_BITS + KEY_BITS))
        return codec(f"{name}:ratio={_dropped(kept)}")
    if name in ("ms", "ms-nearest"):
        mask = math.ceil(bits) - 1
        rounding = ",rounding=nearest" if name == "ms-nearest" else ""
        return codec(f"ms:ratio={_dropped((bits - mask) / FLOAT_BITS)},bits={mask}{rounding}")
    raise ParameterError(f"no family {name!r}; choose from qu, sp, rt, ms, ms-nearest")


def _dropped(kept: float) -> float:
    # Ten digits: 1 - 0.04125 is not the double nearest to 0.95875.
    return round(1 - kept, 10)
