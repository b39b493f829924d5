"""The transform of tokens: centres and scales of channels, and principal axes (FORMAT.md, "Tokens").

Channels of a transformer's activations have means and spreads of their own, and are correlated: few
directions hold most of the energy. Tokens are centred, perhaps scaled, and projected onto as many principal
axes as the rate is worth. Axes are 8-bit integers, so that they cost little in a small batch.
"""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs.entropy.layout import TOKENS, ByteReader, malformed

MAX_CHANNELS = 1024  # that are rotated: with more, finding the axes takes seconds
SCALE_STEPS = 8  # scales are multiplied by 2^(-e / 8)
AXIS_UNIT = 127  # entries of axes are multiples of 1/127 of the axis' scale
MAX_UNIT, MAX_SCALE = 2.0**100, 2.0**40  # of centres and of scales
_HEAD = struct.Struct("<BHff")  # coding, axes, unit of centres, largest scale
_FIT_TOKENS = 1 << 14  # tokens to which axes are fitted
_BISECTIONS = 40
_WASTE = 0.25  # bits an element that a quantizer with an entropy coder needs above the theoretical limit

Array = NDArray[Any]


@dataclass(frozen=True)
class TokenTransform:
    """From tokens (tokens, channels) to what is coded, and back. Everything is as the decoder knows it."""

    unit: float  # of the centres
    centres: Array  # int16, one a channel
    largest: float  # the largest scale; 1 if there are none
    exponents: Array | None  # uint8, one a channel: scales below the largest
    axis_exponents: Array  # uint8, one an axis
    axes: Array  # int8 (axes, channels); no axes: channels are coded as they are

    @property
    def scales(self) -> Array | float:
        """The scale of each channel, or of all."""
        if self.exponents is None:
            return self.largest
        found: Array = self.largest * np.exp2(-self.exponents.astype(np.float64) / SCALE_STEPS)
        return found

    @property
    def channels(self) -> int:
        """Channels of what is coded."""
        return len(self.axes) or len(self.centres)

    def matrix(self) -> Array:
        """The axes as rows."""
        size = np.exp2(-self.axis_exponents.astype(np.float64) / SCALE_STEPS) / AXIS_UNIT
        found: Array = self.axes * size[:, None]
        return found

    def inverse(self, coded: Array) -> Array:
        """Tokens (float64) from what is coded."""
        scaled = coded @ self.matrix() if len(self.axes) else coded
        found: Array = scaled * self.scales + self.centres * np.float64(self.unit)
        return found

    def to_bytes(self) -> bytes:
        """The head of the section."""
        flag = 0 if self.exponents is None else 1
        parts = [
            _HEAD.pack(TOKENS, len(self.axes) << 1 | flag, self.unit, self.largest),
            self.centres.astype("<i2").tobytes(),
            b"" if self.exponents is None else self.exponents.tobytes(),
            self.axis_exponents.tobytes(),
            self.axes.tobytes(),
        ]
        return b"".join(parts)


def read_transform(reader: ByteReader, channels: int) -> TokenTransform:
    """Read and check the head of a section."""
    _, packed, unit, largest = _HEAD.unpack(reader.take(_HEAD.size))
    count = packed >> 1
    if count > min(channels, MAX_CHANNELS) or not 0 <= unit < MAX_UNIT or not 0 < largest < MAX_SCALE:
        raise malformed(f"{count} axes, centres of {unit} and scales of {largest}")
    centres = reader.array("<i2", channels)
    exponents = reader.array(np.uint8, channels) if packed & 1 else None
    axis_exponents = reader.array(np.uint8, count)
    axes = reader.array(np.int8, count, channels)
    return TokenTransform(unit, centres.astype(np.int16), largest, exponents, axis_exponents, axes)


@dataclass(frozen=True)
class Target:
    """What is asked of a section: bits an element, a relative squared error, or a step (in RMS)."""

    bpe: float = 0.0
    error: float = 0.0
    step: float = 0.0


def fit_transform(tokens: Array, *, scale: bool, rotation: str, target: Target) -> TokenTransform:
    """Centres, scales and axes for tokens (float64). `rotation`: none, pca, or auto (if it seems to pay)."""
    channels = tokens.shape[1]
    mean = tokens.mean(0)
    unit = float(np.float32(np.abs(mean).max() / 32767))
    centres = np.rint(mean / unit if unit > 0 else 0 * mean).clip(-32767, 32767).astype(np.int16)
    largest, exponents = 1.0, None
    if scale:
        spread = np.sqrt(np.square(tokens - centres * np.float64(unit)).mean(0))
        largest = float(np.float32(max(spread.max(), 2.0**-60)))
        with np.errstate(divide="ignore"):
            exponents = np.rint(SCALE_STEPS * np.log2(largest / spread)).clip(0, 255).astype(np.uint8)
    none = np.zeros(0, np.uint8), np.zeros((0, channels), np.int8)
    plain = TokenTransform(unit, centres, largest, exponents, *none)
    if rotation == "none" or not 1 < channels <= MAX_CHANNELS:
        return plain
    some = tokens[:: max(1, len(tokens) // _FIT_TOKENS)]
    some = (some - centres * np.float64(unit)) / plain.scales
    energy = float(
        np.square(some if scale else some * plain.scales + centres * np.float64(unit)).sum(1).mean()
    )
    if not energy > 0:
        return plain
    variances, vectors = np.linalg.eigh(some.T @ some / len(some))
    variances, vectors = np.maximum(variances[::-1], 0), vectors[:, ::-1].T
    count = _axes_that_pay(variances, np.square(some).mean(0), energy, len(tokens), target, rotation == "pca")
    if count == 0:
        return plain
    kept = vectors[:count]
    kept = kept * np.sign(kept[np.arange(count), np.abs(kept).argmax(1)])[:, None]
    most = np.abs(kept).max(1)
    shrink = np.floor(-SCALE_STEPS * np.log2(most)).clip(0, 255)
    axes = np.rint(kept * (AXIS_UNIT * np.exp2(shrink / SCALE_STEPS))[:, None]).clip(-127, 127)
    return TokenTransform(unit, centres, largest, exponents, shrink.astype(np.uint8), axes.astype(np.int8))


def centred(transform: TokenTransform, tokens: Array) -> Array:
    """Tokens without their centres, divided by their scales."""
    found: Array = (tokens - transform.centres * np.float64(transform.unit)) / transform.scales
    return found


def project(transform: TokenTransform, tokens: Array) -> Array:
    """What is coded of tokens (float32): their coordinates on the axes, by least squares."""
    scaled: Array = centred(transform, tokens).astype(np.float32)
    if not len(transform.axes):
        return scaled
    matrix = transform.matrix()
    # Rounded axes are only nearly orthogonal.
    found: Array = scaled @ np.linalg.solve(matrix @ matrix.T, matrix).T.astype(np.float32)
    return found


def _axes_that_pay(
    variances: Array, of_channels: Array, energy: float, tokens: int, target: Target, forced: bool
) -> int:
    """How many axes to send, by reverse water-filling; 0 if channels as they are take fewer bits."""
    channels = len(variances)
    side = 8 * (channels + 1) / tokens  # bits of an axis, for each token
    if target.bpe:
        budget = target.bpe * channels
        level = _level(variances, lambda d, kept: _bits(variances, d) + side * kept <= budget)
        plain = _level(of_channels, lambda d, _: _bits(of_channels, d) <= budget)
        pays = np.minimum(variances, level).sum() < np.minimum(of_channels, plain).sum()
    elif target.error:
        most = target.error * energy
        level = _level(variances, lambda d, _: np.minimum(variances, d).sum() > most)
        plain = _level(of_channels, lambda d, _: np.minimum(of_channels, d).sum() > most)
        kept = int((variances > level).sum())
        pays = _bits(variances, level) + side * kept < _bits(of_channels, plain)
    else:
        level = target.step**2 * of_channels.mean() / 12
        kept = int((variances > level).sum())
        pays = _bits(variances, level) + side * kept < _bits(of_channels, level)
    return max(1, int((variances > level).sum())) if pays or forced else 0


def _bits(variances: Array, distortion: float) -> float:
    """Bits a token at a distortion of each component that is larger."""
    above = variances[variances > distortion]
    return float((0.5 * np.log2(above / distortion) + _WASTE).sum())


def _level(variances: Array, enough: Any) -> float:
    """The smallest distortion level for which `enough(level, components above it)`, by bisection."""
    low, high = (
        np.log(max(float(variances.max()), 2.0**-200)) - 40,
        np.log(max(float(variances.max()), 2.0**-200)),
    )
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        level = float(np.exp(middle))
        low, high = (low, middle) if enough(level, int((variances > level).sum())) else (middle, high)
    return float(np.exp(high))
