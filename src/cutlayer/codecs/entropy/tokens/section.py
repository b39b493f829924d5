"""Encode and decode a section of tokens: channels come last and have no neighbours (FORMAT.md, "Tokens").

What `transform` makes of the tokens is coded like planes, one row of tokens for each channel or axis.
The context model has a constant for each: its own statistics take the place of spatial neighbours.
"""

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from cutlayer.codecs.base import Writer
from cutlayer.codecs.entropy import rate_control
from cutlayer.codecs.entropy.context_model import PARENTS, ContextModel, weights_per_channel
from cutlayer.codecs.entropy.dct_context_model import fit_dct_model
from cutlayer.codecs.entropy.layout import MAX_LEVELS, ByteReader, malformed, varint
from cutlayer.codecs.entropy.rate_control import Encoded
from cutlayer.codecs.entropy.section_reader import read_section
from cutlayer.codecs.entropy.section_shape import SectionShape
from cutlayer.codecs.entropy.section_writer import SectionWriter, as_float
from cutlayer.codecs.entropy.tokens.transform import (
    MAX_SCALE,
    Target,
    TokenTransform,
    centred,
    fit_transform,
    project,
    read_transform,
)
from cutlayer.codecs.entropy.trial_rows import TrialRows
from cutlayer.codecs.kernels.interface import Kernels
from cutlayer.codecs.tensors import Tensor, count, host, in_torch

MIN_TOKENS = 64  # with fewer, what is stored for each channel costs more than it saves
# The largest top value (2^60, or the largest float16) as bits of each type of values, and the limit of steps:
# with these no sum can overflow.
MAX_TOP_BITS = (0x5D800000, 0x7BFF, 0x5D80)
MAX_STEP = 2.0**50
_TOP_SHARE = 2048  # one element in so many is a top value
_MAX_TOP_SHARE = 16  # the limit, when levels alone are not fine enough
_BUDGET_USED = 0.9  # a section that uses this share of its budget is good enough
_TRIES = 6
_CHUNK = 1 << 18  # elements that are decoded at a time
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


def _coded_shape(shape: SectionShape, transform: TokenTransform) -> SectionShape:
    """The shape of what is coded: with axes, it has as many channels as there are axes."""
    return SectionShape(shape.d // shape.channels * transform.channels, transform.channels, 1, shape.width)


class TokenWriter(SectionWriter):
    """Writes channels or axes. With too few elements for weights of their own, they share weights."""

    def _fit_model(self, n_levels: int, levels: Tensor, of: TrialRows) -> ContextModel:
        """See `SectionWriter`."""
        if weights_per_channel(self.shape) or self.shape.channels == 1:
            return super()._fit_model(n_levels, levels, of)

        def cost(model: ContextModel) -> float:
            histogram = self.kernels.ems_contexts(levels, of.shape, of.rows, model, n_levels)[1]
            return self.kernels.ems_frequency_tables(histogram)[1]

        parents = tuple(range(1, min(PARENTS, self.shape.channels - 1) + 1))
        return fit_dct_model(host(levels), of.shape, n_levels, cost, parents)

    def model_size(self, model: ContextModel) -> int:
        """See `SectionWriter`."""
        return model.rows + 16 if model.shared else super().model_size(model)


class TokenSection:
    """One section's tokens, and how to encode them towards a target."""

    def __init__(
        self,
        x: Tensor,
        shape: SectionShape,
        values: int,
        kernels: Kernels,
        *,
        scale: bool,
        rotation: str,
        target: Target,
    ) -> None:
        self.values, self.kernels, self.target = values, kernels, target
        self.relative_to_variance = scale
        self.tokens = host(x).reshape(-1, shape.channels).astype(np.float64)
        self.transform = fit_transform(self.tokens, scale=scale, rotation=rotation, target=target)
        self.shape = _coded_shape(shape, self.transform)
        self.coded = project(self.transform, self.tokens)
        planes = self.coded.reshape(-1, shape.width, self.shape.channels).swapaxes(1, 2)
        self.y = kernels.empty_like(x, planes.size).reshape(1, -1)
        _fill(self.y, planes)

    @cached_property
    def scaled(self) -> Array:
        """Centred and scaled tokens, of which errors are measured."""
        return centred(self.transform, self.tokens)

    @cached_property
    def lost(self) -> float:
        """The squared error of what the axes leave out."""
        if not len(self.transform.axes):
            return 0.0
        return float(np.square(self.scaled - self.coded @ self.transform.matrix()).sum())

    def encode(self, budget: int) -> Encoded | None:
        """The section that meets the target, with a rate in at most `budget` bytes; None if there is none."""
        if self.target.bpe:
            return self._within_bytes(budget)
        if self.target.error:
            return self._within_error()
        writer = self._writer(max(1, self.shape.d // _TOP_SHARE))
        if writer is None:
            return None
        spread = float(np.sqrt(np.square(self.scaled).mean()))
        return self._with_head(rate_control.with_step(writer, self.target.step * spread))

    def _within_bytes(self, budget: int) -> Encoded | None:
        """The section of least error in at most `budget` bytes."""
        left = budget - len(self.transform.to_bytes()) - 5  # the section's size takes up to five bytes
        tops, best = max(1, min(self.shape.d // _TOP_SHARE, left // 16)), None
        while left > 0 and (writer := self._writer(tops)):
            encoded = self._with_head(rate_control.within_bytes(writer, left))
            if len(encoded[0]) <= budget:
                best = encoded
            tops *= 4
            # Bytes are left over at the most levels: then more elements become top values.
            full = len(encoded[0]) > _BUDGET_USED * budget or encoded[1] < MAX_LEVELS
            if full or tops > self.shape.d // _MAX_TOP_SHARE:
                break
        return best

    def _within_error(self) -> Encoded | None:
        """The smallest section that keeps the error."""
        whole = self.scaled if self.relative_to_variance else self.tokens
        tops, bound = max(1, self.shape.d // _TOP_SHARE), self.target.error * float(np.square(whole).sum())
        for _ in range(_TRIES):
            writer = self._writer(min(tops, self.shape.d))
            if writer is None:
                break
            found = rate_control.within_error(writer, _MARGIN * bound - self.lost)
            if found:
                encoded = self._with_head(found)
                # Top values are rounded to their type, and axes are only nearly orthogonal.
                if (error := self._squared_error(encoded)) <= bound:
                    return encoded
                bound -= 1.5 * (error - bound)
            tops *= 4  # even the most levels are too coarse: more elements become top values
        return None

    def _squared_error(self, encoded: Encoded) -> float:
        """The squared error of scaled tokens, as they will be decoded."""
        reader = ByteReader(memoryview(encoded[0]))
        size = reader.varint(len(encoded[0]))
        start = reader.at
        body = ByteReader(reader.take(size))
        read_transform(body, len(self.transform.centres))
        how = (encoded[1], self.values, self.kernels)
        coded = _as_tokens(_read_coded(body, encoded[0], start, self.shape, *how)())
        if len(self.transform.axes):
            coded = coded @ self.transform.matrix()
        return float(np.square(self.scaled - coded).sum())

    def _writer(self, tops: int) -> TokenWriter | None:
        """A writer with so many top values; None if an element is too large for the type of values."""
        top: Any = self.kernels.select_top(self.y, tops)
        if not top.largest <= as_float(MAX_TOP_BITS[self.values], self.values):
            return None
        return TokenWriter(self.y, top, 0, self.values, True, self.shape, self.kernels)

    def _with_head(self, encoded: Encoded) -> Encoded:
        """Put the head in front of the inner section, and one size in front of both."""
        inner = ByteReader(memoryview(encoded[0]))
        inner.varint(len(encoded[0]))
        body = self.transform.to_bytes() + encoded[0][inner.at :]
        return varint(len(body)) + body, encoded[1]


def encode_tokens(
    x: Tensor,
    largest: float,
    budget: int,
    target: Target,
    values: int,
    writer: Writer,
    scale: bool,
    rotation: str,
) -> Encoded | None:
    """A section of tokens; None if the tensor has none, or they are too large to be coded as such."""
    shape = token_shape(writer.source.shape, math.prod(writer.source.shape) // count(x))
    # Decoded tokens may be a little larger than they were.
    if shape is None or largest >= min(MAX_SCALE, writer.source.dtype.largest / 4):
        return None
    how = (x, shape, values, writer.kernels)
    return TokenSection(*how, scale=scale, rotation=rotation, target=target).encode(budget)


def _read_coded(
    reader: ByteReader,
    frame: Buffer,
    start: int,
    shape: SectionShape,
    levels: int,
    values: int,
    kernels: Kernels,
) -> Callable[[], Array]:
    """Check what is coded; the function gives it, float32 of shape (samples, channels or axes, tokens)."""
    limits = (MAX_TOP_BITS, MAX_STEP)
    dequantize = read_section(reader, frame, start, shape, levels, "mean", values, True, kernels, *limits)

    def coded() -> Array:
        y = kernels.own(np.empty(shape.d, np.float32))
        dequantize(y)
        found: Array = host(y).reshape(-1, shape.channels, shape.width)
        return found

    return coded


def _fill(out: Tensor, found: Array) -> None:
    """Write an array into a tensor of the kernels, of as many elements."""
    found = np.ascontiguousarray(found, np.float32).reshape(tuple(out.shape))
    out[...] = found if isinstance(out, np.ndarray) else in_torch(found)


def _as_tokens(planes: Array) -> Array:
    """From (samples, channels, tokens) to float64 (tokens of all samples, channels)."""
    return planes.swapaxes(1, 2).reshape(-1, planes.shape[1]).astype(np.float64)


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
    transform = read_transform(reader, shape.channels)
    coded_shape = _coded_shape(shape, transform)
    coded = _read_coded(reader, frame, start, coded_shape, levels, values, kernels)

    def inverse(out: Tensor) -> None:
        planes, rows = coded(), out.reshape(-1, shape.sample)
        some = max(1, _CHUNK // shape.sample)  # samples at a time, since float64 takes twice the memory
        for at in range(0, len(planes), some):
            tokens = _as_tokens(planes[at : at + some])
            _fill(rows[at : at + some], transform.inverse(tokens))

    return inverse
