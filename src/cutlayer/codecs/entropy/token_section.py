"""Encode and decode a section of tokens: channels come last and have no neighbours (FORMAT.md, "Tokens").

Each channel has a centre, which is subtracted, and perhaps a scale, by which it is divided. Channels may then
be rotated into each other (PCA). The result is coded like planes, with a constant for each channel in
the context model: what a channel's own statistics say takes the place of spatial neighbours.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Buffer

from cutlayer.codecs.entropy import rate_control
from cutlayer.codecs.entropy.context_model import PARENTS, ContextModel
from cutlayer.codecs.entropy.dct_context_model import fit_dct_model
from cutlayer.codecs.entropy.layout import MAX_LEVELS, TOKENS, ByteReader, malformed, varint
from cutlayer.codecs.entropy.least_squares import weights_per_channel
from cutlayer.codecs.entropy.pca import MAX_CHANNELS, ROTATION_UNIT, eigenvectors
from cutlayer.codecs.entropy.rate_control import Encoded
from cutlayer.codecs.entropy.section_reader import read_section
from cutlayer.codecs.entropy.section_shape import SectionShape
from cutlayer.codecs.entropy.section_writer import SectionWriter, as_float
from cutlayer.codecs.entropy.trial_rows import TrialRows
from cutlayer.codecs.kernels.interface import Kernels

ROTATED, SCALED = 1, 2  # bits of the section's flags
SCALE_STEPS = 8  # scales are the largest one times 2^(-e / 8)
MIN_TOKENS = 64  # with fewer, what is stored for each channel costs more than it saves
# The largest top value (2^80, or the largest float16) as bits of each type of values, and the limits of
# steps, of the unit of centres and of scales: with these no sum can overflow.
MAX_TOP_BITS = (0x67800000, 0x7BFF, 0x6780)
MAX_STEP, MAX_UNIT, MAX_SCALE = 2.0**60, 2.0**100, 2.0**40
_HEAD = struct.Struct("<BBff")  # coding, flags, unit of centres, largest scale
_TOP_SHARE = 2048  # one element in so many is a top value
_MAX_TOP_SHARE = 16  # the limit, when levels alone are not fine enough
_BUDGET_USED = 0.9  # a section that uses this share of its budget is good enough
_FIT_TOKENS = 1 << 14  # tokens to which a rotation is fitted
_TRIES = 6
_MARGIN = 0.9995  # of the error bound, for what rate control does not see

Array = NDArray[Any]


def token_shape(shape: tuple[int, ...], sections: int) -> SectionShape | None:
    """The shape of a section of tokens: samples of C channels of T tokens; None if there are too few."""
    if len(shape) < 2:
        return None
    channels, tokens = shape[-1], int(np.prod(shape[1:-1], dtype=np.int64))
    d = shape[0] * tokens * channels // sections
    enough = channels > 1 and d // channels >= MIN_TOKENS and d % (tokens * channels) == 0
    return SectionShape(d, channels, 1, tokens) if enough else None


class TokenWriter(SectionWriter):
    """Writes centred channels. With too few elements for weights of their own, channels share weights."""

    def _fit_model(self, n_levels: int, levels: Tensor, of: TrialRows) -> ContextModel:
        """See `SectionWriter`."""
        if weights_per_channel(self.shape):
            return super()._fit_model(n_levels, levels, of)

        def cost(model: ContextModel) -> float:
            histogram = self.kernels.ems_contexts(levels, of.shape, of.rows, model, n_levels)[1]
            return self.kernels.ems_frequency_tables(histogram)[1]

        parents = tuple(range(1, min(PARENTS, self.shape.channels - 1) + 1))
        return fit_dct_model(levels.cpu().numpy(), of.shape, n_levels, cost, parents)

    def model_size(self, model: ContextModel) -> int:
        """See `SectionWriter`."""
        return model.rows + 16 if model.shared else super().model_size(model)


class TokenSection:
    """One section's elements, centred, scaled and rotated, and how to encode them."""

    def __init__(
        self, x: Tensor, shape: SectionShape, values: int, kernels: Kernels, *, rotate: bool, scale: bool
    ) -> None:
        self.shape, self.values, self.kernels = shape, values, kernels
        tokens = x.view(-1, shape.channels).double().cpu().numpy()
        mean = tokens.mean(0)
        self.unit = float(np.float32(np.abs(mean).max() / 32767))
        self.centres = np.rint(mean / self.unit if self.unit > 0 else 0 * mean).clip(-32767, 32767)
        centred = tokens - self.centres * self.unit
        self.energy = float(np.square(tokens).sum())
        self.largest, self.exponents = 1.0, None
        if scale:
            spread = np.sqrt(np.square(centred).mean(0))
            self.largest = float(np.float32(max(spread.max(), 2.0**-60)))
            with np.errstate(divide="ignore"):
                steps = np.rint(SCALE_STEPS * np.log2(self.largest / spread))
            self.exponents = steps.clip(0, 255).astype(np.uint8)
            centred /= _scales(self.largest, self.exponents)
            self.energy = float(np.square(centred).sum())
        self.rotation = _rotation(centred) if rotate and shape.channels <= MAX_CHANNELS else None
        self.centred = centred
        if self.rotation is not None:
            centred = centred @ (self.rotation.astype(np.float64) / ROTATION_UNIT).T
        planes = centred.reshape(-1, shape.width, shape.channels).swapaxes(1, 2)
        self.y = torch.from_numpy(np.ascontiguousarray(planes, np.float32)).view(1, -1).to(x.device)

    def within_bytes(self, budget: int) -> Encoded | None:
        """The section of least error in at most `budget` bytes; None if there is none."""
        header = self._header()
        left = budget - len(header) - 5  # the section's size, in front of it, takes up to five bytes
        tops, best = max(1, min(self.shape.d // _TOP_SHARE, left // 16)), None
        while left > 0 and (writer := self._writer(tops)):
            encoded = self._with_header(header, rate_control.within_bytes(writer, left))
            if len(encoded[0]) <= budget:
                best = encoded
            tops *= 4
            # Bytes are left over at the most levels: then more elements become top values.
            full = len(encoded[0]) > _BUDGET_USED * budget or encoded[1] < MAX_LEVELS
            if full or tops > self.shape.d // _MAX_TOP_SHARE:
                break
        return best

    def within_error(self, error: float) -> Encoded | None:
        """The smallest section of at most this relative squared error; None if there is none.

        With scales, it is the error of scaled elements, relative to their variance.
        """
        tops, bound = max(1, self.shape.d // _TOP_SHARE), error * self.energy
        for _ in range(_TRIES):
            writer = self._writer(min(tops, self.shape.d))
            if writer is None:
                break
            found = rate_control.within_error(writer, _MARGIN * bound)
            if found:
                encoded = self._with_header(self._header(), found)
                # Top values are rounded to their type, and a rotation is only nearly orthogonal.
                if self.squared_error(encoded) <= bound:
                    return encoded
            tops *= 4  # even the most levels are too coarse: more elements become top values
        return None

    def with_step(self, step: float) -> Encoded | None:
        """The section at a step, in multiples of the root mean square of what is coded."""
        writer = self._writer(max(1, self.shape.d // _TOP_SHARE))
        if writer is None:
            return None
        spread = (self.kernels.ems_energy(self.y[0]) / self.shape.d) ** 0.5
        return self._with_header(self._header(), rate_control.with_step(writer, step * spread))

    def squared_error(self, encoded: Encoded) -> float:
        """The squared error of scaled elements, as they will be decoded."""
        reader = ByteReader(memoryview(encoded[0]))
        size = reader.varint(len(encoded[0]))
        start = reader.at
        body = ByteReader(reader.take(size))
        decode = _read_inner(body, encoded[0], start, self.shape, encoded[1], self.values, self.kernels)[1]
        found = torch.empty_like(self.y[0])
        decode(found)
        if self.rotation is None:
            return self.kernels.ems_energy(self.y[0] - found)
        # The decoder inverts the rotation by its transpose.
        planes = found.cpu().numpy().reshape(-1, self.shape.channels, self.shape.width).astype(np.float64)
        matrix = self.rotation.astype(np.float64) / ROTATION_UNIT
        back = np.einsum("kc,nkt->ntc", matrix, planes, optimize=True).reshape(-1, self.shape.channels)
        return float(np.square(back - self.centred).sum())

    def _writer(self, tops: int) -> TokenWriter | None:
        """A writer with so many top values; None if an element is too large for the type of values."""
        top: Any = self.kernels.select_top(self.y, tops)
        if not top.largest <= min(2.0**60, as_float(MAX_TOP_BITS[self.values], self.values)):
            return None
        return TokenWriter(self.y, top, 0, self.values, True, self.shape, self.kernels)

    def _header(self) -> bytes:
        flags = (ROTATED if self.rotation is not None else 0) | (SCALED if self.exponents is not None else 0)
        parts = [_HEAD.pack(TOKENS, flags, self.unit, self.largest), self.centres.astype("<i2").tobytes()]
        if self.exponents is not None:
            parts.append(self.exponents.tobytes())
        if self.rotation is not None:
            parts.append(self.rotation.astype("<i2").tobytes())
        return b"".join(parts)

    @staticmethod
    def _with_header(header: bytes, encoded: Encoded) -> Encoded:
        """Put the header in front of the inner section, and one size in front of both."""
        inner = ByteReader(memoryview(encoded[0]))
        inner.varint(len(encoded[0]))
        body = header + encoded[0][inner.at :]
        return varint(len(body)) + body, encoded[1]


def least_error(sections: list[TokenSection], budget: int) -> Encoded | None:
    """Of all sections, the one of least error within a budget; None if there is none."""
    ways = [(encoded, section) for section in sections if (encoded := section.within_bytes(budget))]
    if len(ways) == 1:
        return ways[0][0]
    return min(ways, key=lambda way: way[1].squared_error(way[0]), default=(None, None))[0]


def read_tokens(
    reader: ByteReader,
    frame: Buffer,
    start: int,
    shape: SectionShape | None,
    levels: int,
    values: int,
    kernels: Kernels,
) -> Callable[[Tensor], None]:
    """Like `read_section`, for a section of tokens; `shape` is None if the tensor can have none."""
    if shape is None:
        raise malformed("a tensor of this shape is not coded as tokens")
    head, dequantize = _read_inner(reader, frame, start, shape, levels, values, kernels)

    def inverse(out: Tensor) -> None:
        y = kernels.empty([shape.d], torch.float32, out.device)
        dequantize(y)
        planes = y.cpu().numpy().reshape(-1, shape.channels, shape.width)
        tokens = planes.swapaxes(1, 2).reshape(-1, shape.channels).astype(np.float64)
        if head.rotation is not None:
            tokens = tokens @ head.rotation
        tokens = tokens * head.scales + head.centres
        out.copy_(torch.from_numpy(np.ascontiguousarray(tokens, np.float32)).view_as(out))

    return inverse


@dataclass(frozen=True)
class _Head:
    """What is stored for each channel, as float64."""

    centres: Array
    scales: Array | float
    rotation: Array | None


def _read_inner(
    reader: ByteReader,
    frame: Buffer,
    start: int,
    shape: SectionShape,
    levels: int,
    values: int,
    kernels: Kernels,
) -> tuple[_Head, Callable[[Tensor], None]]:
    """Check a section. Returns what it says of channels, and a function that writes the coded elements."""
    _, flags, unit, largest = _HEAD.unpack(reader.take(_HEAD.size))
    if flags > ROTATED | SCALED or not 0 <= unit < MAX_UNIT or not 0 < largest < MAX_SCALE:
        raise malformed(f"flags {flags}, centres of {unit} and scales of {largest}")
    centres = reader.array("<i2", shape.channels).astype(np.float64) * unit
    scales: Array | float = largest
    if flags & SCALED:
        scales = _scales(largest, reader.array(np.uint8, shape.channels))
    rotation = None
    if flags & ROTATED:
        if shape.channels > MAX_CHANNELS:
            raise malformed(f"{shape.channels} channels are rotated")
        rotation = reader.array("<i2", shape.channels, shape.channels).astype(np.float64) / ROTATION_UNIT
    limits = (MAX_TOP_BITS, MAX_STEP)
    return _Head(centres, scales, rotation), read_section(
        reader, frame, start, shape, levels, "mean", values, True, kernels, *limits
    )


def _scales(largest: float, exponents: Array) -> Array:
    found: Array = np.float64(largest) * np.exp2(-exponents.astype(np.float64) / SCALE_STEPS)
    return found


def _rotation(tokens: Array) -> Array:
    """Principal axes of channels as rows, by falling energy; int16, in 1/ROTATION_UNIT."""
    some = tokens[:: max(1, len(tokens) // _FIT_TOKENS)]
    # Integers, whose sums float64 holds exactly: the order of additions does not matter.
    whole = np.rint(some * (32767.0 / max(float(np.abs(some).max()), 2.0**-900)))
    axes = np.rint(eigenvectors(whole.T @ whole) * ROTATION_UNIT)
    found: Array = axes.clip(1 - ROTATION_UNIT, ROTATION_UNIT - 1).astype(np.int16)
    return found
