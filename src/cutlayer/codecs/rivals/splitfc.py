"""`splitfc`: SplitFC (2023), columns dropped by their spread, the others quantized by their range."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs import fields
from cutlayer.codecs.base import Codec
from cutlayer.codecs.entropy.layout import malformed
from cutlayer.codecs.kernels.interface import Kernels
from cutlayer.codecs.rivals.base import PayloadReader, Rival, as_channels, bit_stream
from cutlayer.codecs.rivals.logarithm import log2
from cutlayer.errors import RangeError

MAX_BITS = 8
_STREAM = 8  # of the random words that drop columns
_WIDTH_BITS = 4  # of a column's number of bits
_ENDS = 255  # endpoints and means of columns are multiples of the whole range / 255
_BISECTIONS = 50

Array = NDArray[Any]


@dataclass(frozen=True)
class FeatureWiseCompression(Rival):
    """Drop features (columns of the matrix samples x features) and quantize the others.

    A feature is kept with a probability in proportion to its standard deviation over the batch, and divided
    by it. Bits go to features by the logarithm of their range; those without bits are sent as their mean.
    """

    name: ClassVar[str] = "splitfc"
    id: ClassVar[int] = 32
    advice: ClassVar[str] = "a rival (SplitFC): feature dropout and quantization by range"

    drop: float = fields.real(0.9375, 0, 1, "share of features that are dropped", in_header=False)
    bpe: float = fields.real(0.2, 0, 16, "about so many bits an element", in_header=False)
    dropout: str = fields.choice(
        "random", "random", "top", help="keep features at random, or those of largest spread", in_header=False
    )
    seed: int = fields.seed()

    def payload_bytes(self, shape: tuple[int, ...], signed: bool = False) -> int:
        """See `Codec.payload_bytes`. The side information and the budget."""
        n, c, s = as_channels(shape)
        d = c * s
        return 8 + (d + 7) // 8 + d * 3 + int(self.bpe * n * d / 8) + MAX_BITS

    def deterministic(self) -> Codec:
        """All features, quantized: as with any dropout, nothing is dropped in evaluation."""
        return replace(self, drop=0.0, dropout="top")

    def compress(self, x: Array, seed: int, kernels: Kernels) -> bytes:
        """See `Rival.compress`."""
        columns = x.reshape(x.shape[0], -1).astype(np.float64).T
        kept, chance = self._choose(columns.std(1), seed, kernels)
        values = columns[kept] / chance[kept, None]
        lo, hi = values.min(1), values.max(1)
        with np.errstate(over="ignore"):  # adding 0 makes 0 of -0, which processors choose differently
            lowest, highest = (float(np.float32(v)) + 0.0 for v in (lo.min(), hi.max()))
        if not np.isfinite(highest - lowest):
            raise RangeError("splitfc: features that dropout enlarges do not fit float32; scale the tensor")
        unit = (highest - lowest) / _ENDS or 1.0
        budget = self.bpe * x.size - len(columns) - len(kept) * (_WIDTH_BITS + 16)
        bits = _allocate(hi - lo, budget / x.shape[0])
        low = np.clip(np.floor((lo - lowest) / unit), 0, _ENDS)
        high = np.clip(np.ceil((hi - lowest) / unit), low, _ENDS)
        means = np.clip(np.rint((values.mean(1) - lowest) / unit), 0, _ENDS)
        low, high = (np.where(bits > 0, ends, means).astype(np.int64) for ends in (low, high))
        mask = np.zeros(len(columns), np.int64)
        mask[kept] = 1
        parts = [
            np.array([lowest, highest], "<f4").tobytes(),
            bit_stream(mask, 1, kernels),
            bit_stream(bits, _WIDTH_BITS, kernels),
            low.astype(np.uint8).tobytes(),
            high[bits > 0].astype(np.uint8).tobytes(),
        ]
        for width in range(1, MAX_BITS + 1):
            chosen = bits == width
            start, end = lowest + low[chosen] * unit, lowest + high[chosen] * unit
            scale = (2**width - 1) / np.where(end > start, end - start, np.inf)
            codes = np.rint((values[chosen] - start[:, None]) * scale[:, None])
            codes = np.clip(codes, 0, 2**width - 1).astype(np.int64)
            parts.append(bit_stream(codes, width, kernels))
        return b"".join(parts)

    def _choose(self, spread: Array, seed: int, kernels: Kernels) -> tuple[Array, Array]:
        """Which columns are kept, in order, and the probability of each column to be kept."""
        wanted = max(1, round((1 - self.drop) * len(spread)))
        if self.dropout == "top" or not spread.any():
            kept = np.sort(np.argsort(-spread, kind="stable")[:wanted])
            return kept, np.ones(len(spread))
        low, high = 0.0, len(spread) / float(spread[spread > 0].min())
        for _ in range(_BISECTIONS):  # the factor for which so many columns are kept on average
            middle = (low + high) / 2
            low, high = (low, middle) if np.minimum(1, middle * spread).sum() > wanted else (middle, high)
        chance = np.minimum(1, high * spread)
        words = kernels.random_words(seed, _STREAM, 0, 0, len(spread))
        kept = np.flatnonzero(words / 2.0**32 < chance)
        if not len(kept):  # nothing was drawn: the widest column stays
            kept = np.array([spread.argmax()])
        return kept, np.where(chance > 0, chance, 1.0)

    def expand(self, payload: PayloadReader, shape: tuple[int, int, int]) -> Array:
        """See `Rival.expand`."""
        n, d = shape[0], shape[1] * shape[2]
        lowest, highest = payload.floats(2).tolist()
        if lowest > highest:
            raise malformed(f"elements lie between {lowest} and {highest}")
        unit = (highest - lowest) / _ENDS
        kept = payload.codes(d, 1).nonzero()[0]
        if not len(kept):
            raise malformed("no column is kept")
        bits = payload.codes(len(kept), _WIDTH_BITS)
        if int(bits.max()) > MAX_BITS:
            raise malformed(f"{int(bits.max())} bits an element")
        low = payload.array(np.uint8, len(kept)).astype(np.float64)
        high = low.copy()
        high[bits > 0] = payload.array(np.uint8, int((bits > 0).sum()))
        if (high < low).any():
            raise malformed("the range of a column ends before it starts")
        out = np.zeros((d, n), np.float32)
        out[kept] = (lowest + low * unit)[:, None]
        for width in range(1, MAX_BITS + 1):
            chosen = bits == width
            codes = payload.codes(int(chosen.sum()) * n, width).reshape(-1, n)
            start, step = lowest + low[chosen] * unit, (high - low)[chosen] * unit / (2**width - 1)
            out[kept[chosen]] = start[:, None] + codes * step[:, None]
        return out.T


def _allocate(ranges: Array, budget: float) -> Array:
    """Bits of each column, 0 to MAX_BITS, about `budget` in all: the logarithm of its range, less a level."""
    wanted = log2(ranges)
    finite = wanted[np.isfinite(wanted)]
    if not len(finite) or budget <= 0:
        return np.zeros(len(ranges), np.int64)
    low, high = float(finite.min()) - MAX_BITS - 1, float(finite.max()) + 1
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        used = np.clip(np.rint(wanted - middle), 0, MAX_BITS).sum()
        low, high = (middle, high) if used > budget else (low, middle)
    return np.clip(np.rint(wanted - high), 0, MAX_BITS).astype(np.int64)
