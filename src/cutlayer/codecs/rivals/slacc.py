"""`slacc`: SL-ACC (2025), channels in groups by their entropy, each group with bits of its own."""

import struct
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs import fields
from cutlayer.codecs.entropy.layout import malformed
from cutlayer.codecs.kernels.interface import Kernels
from cutlayer.codecs.rivals.base import PayloadReader, Rival, as_channels, bit_stream
from cutlayer.codecs.rivals.logarithm import log2
from cutlayer.errors import ParameterError

MAX_BITS, MAX_GROUPS = 8, 8
_GROUP = struct.Struct("<Bff")  # bits, lowest, highest
_GROUP_BITS = 3  # of a group's number
_BINS = 256  # of the histogram from which a channel's entropy is computed
_SAMPLED = 1 << 16  # elements of a channel, at most, that are counted
_ROUNDS = 20  # of k-means in one dimension


Array = NDArray[Any]


@dataclass(frozen=True)
class ChannelEntropy(Rival):
    """Quantize channels uniformly, with more bits for groups of channels of higher entropy."""

    name: ClassVar[str] = "slacc"
    id: ClassVar[int] = 34
    advice: ClassVar[str] = "a rival (SL-ACC): bits by the entropy of channels"

    low: int = fields.integer(2, 1, MAX_BITS, "bits of the group of least entropy")
    high: int = fields.integer(6, 1, MAX_BITS, "bits of the group of most entropy")
    groups: int = fields.integer(4, 1, MAX_GROUPS, "groups of channels", shown=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low > self.high:
            raise ParameterError(f"slacc: low={self.low} is more than high={self.high}")

    def payload_bytes(self, shape: tuple[int, ...], signed: bool = False) -> int:
        """See `Codec.payload_bytes`. All channels in the group of most bits."""
        n, c, s = as_channels(shape)
        streams = (n * c * s * self.high + 7) // 8 + self.groups
        return (c * _GROUP_BITS + 7) // 8 + self.groups * _GROUP.size + streams

    def compress(self, x: Array, seed: int, kernels: Kernels) -> bytes:
        """See `Rival.compress`."""
        planes = x.swapaxes(0, 1).reshape(x.shape[1], -1)
        lo, hi = planes.min(1), planes.max(1)
        entropy = _entropy(planes, lo, hi)
        group, centres = _cluster(entropy, self.groups)
        spread = float(centres[-1] - centres[0])
        heads, streams = [], []
        for g, centre in enumerate(centres.tolist()):
            members = group == g
            share = (centre - centres[0]) / spread if spread > 0 else 1.0
            bits = round(self.low + (self.high - self.low) * share)
            # Adding 0 makes 0 of -0, which processors choose differently.
            lowest = float(lo[members].min()) + 0.0 if members.any() else 0.0
            highest = float(hi[members].max()) + 0.0 if members.any() else 0.0
            heads.append(_GROUP.pack(bits, lowest, highest))
            scale = (2**bits - 1) / (highest - lowest) if highest > lowest else 0.0
            # In float64, so that ranges near the ends of float32 do not overflow.
            codes = np.rint((planes[members].astype(np.float64) - lowest) * scale).astype(np.int64)
            streams.append(bit_stream(codes, bits, kernels))
        which = bit_stream(group, _GROUP_BITS, kernels)
        return b"".join([which, *heads, *streams])

    def expand(self, payload: PayloadReader, shape: tuple[int, int, int]) -> Array:
        """See `Rival.expand`."""
        n, c, s = shape
        group = payload.codes(c, _GROUP_BITS)
        if int(group.max()) >= self.groups:
            raise malformed("a channel is in a group that does not exist")
        heads = [_GROUP.unpack(payload.take(_GROUP.size)) for _ in range(self.groups)]
        planes = np.empty((c, n * s), np.float32)
        for g, (bits, lowest, highest) in enumerate(heads):
            if not (1 <= bits <= MAX_BITS and -np.inf < lowest <= highest < np.inf):
                raise malformed(f"{bits} bits from {lowest} to {highest}")
            members = group == g
            codes = payload.codes(int(members.sum()) * n * s, bits)
            step = (highest - lowest) / (2**bits - 1)
            planes[members] = (lowest + codes * step).reshape(-1, n * s)
        return planes.reshape(c, n, s).swapaxes(0, 1)


def _entropy(planes: Array, lo: Array, hi: Array) -> Array:
    """The Shannon entropy of each channel, in bits, from a histogram over its range."""
    some = planes[:, :: max(1, planes.shape[1] // _SAMPLED)].astype(np.float64)
    low, high = lo.astype(np.float64), hi.astype(np.float64)
    width = np.where(hi > lo, high - low, 1.0)[:, None]
    place = ((some - low[:, None]) / width * (_BINS - 1)).astype(np.int64)
    place += np.arange(len(planes))[:, None] * _BINS
    counts = np.bincount(place.reshape(-1), minlength=len(planes) * _BINS).reshape(-1, _BINS)
    share = counts / counts.sum(1, keepdims=True)
    found: Array = -(share * log2(np.where(share > 0, share, 1.0))).sum(1)
    return found


def _cluster(values: Array, k: int) -> tuple[Array, Array]:
    """K-means in one dimension, from quantiles: the cluster of each value, and the centres in order."""
    centres = np.quantile(values, (np.arange(k) + 0.5) / k)
    for _ in range(_ROUNDS):
        nearest = np.abs(values[:, None] - centres).argmin(1)
        means = [values[nearest == g].mean() if (nearest == g).any() else centres[g] for g in range(k)]
        centres = np.sort(np.array(means))
    return np.abs(values[:, None] - centres).argmin(1), centres
