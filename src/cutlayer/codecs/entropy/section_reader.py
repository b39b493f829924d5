"""Decode one section of an `ems` payload. All bytes are checked before any element is written."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from cutlayer.codecs.entropy.layout import MAX_STEP, ByteReader, SectionHeader, malformed, parse_header
from cutlayer.codecs.entropy.section_shape import SectionShape
from cutlayer.codecs.entropy.section_writer import as_float, as_floats
from cutlayer.codecs.kernels.interface import Kernels
from cutlayer.codecs.tensors import Tensor

MAX_FINITE_BITS = (0x7F7FFFFF, 0x7BFF, 0x7F7F)  # the largest finite magnitude of each type of values, as bits

MAX_STEPS = 1 << 23  # the largest top value of stochastic rounding, in steps

Array = NDArray[Any]


def read_section(
    reader: ByteReader,
    frame: Buffer,
    start: int,
    shape: SectionShape,
    levels: int,
    rounding: str,
    values: int,
    signed: bool,
    kernels: Kernels,
    max_bits: tuple[int, ...] = MAX_FINITE_BITS,
    max_step: float = MAX_STEP,
) -> Callable[[Tensor], None]:
    """Check a section and decode its levels and top values. Returns a function that writes the elements.

    The section's bytes are in `reader`, and begin at `start` in the frame. No top value may exceed `max_bits`
    (the bits of each type of values), and no step `max_step`.
    """
    stochastic = rounding == "stochastic"
    most = MAX_STEPS if stochastic else max_bits[values]
    header = parse_header(reader, shape, levels, rounding, most, max_step)
    width = header.width + signed
    raw = _bit_stream(reader, frame, start, header.tops, width, kernels)
    code = raw >> 1 if signed else raw
    if header.tops and int(code.max()) + header.low > most:
        raise malformed("a top value is too large, infinite or not a number")
    if stochastic and header.points:
        tops = _in_steps(code + header.low, header, header.points.step)
    else:
        tops = as_floats(code + header.low, values)
    if signed:
        tops = np.where(raw & 1 > 0, -tops, tops)
    found = _levels(reader, frame, start, header, shape, kernels)
    offsets = kernels.ems_sample_offsets(found, shape, header.levels, signed)
    marks, signs_sent = offsets[:, -1].tolist()
    if marks != header.tops:
        raise malformed(f"{marks} elements are marked, but there are {header.tops} top values")
    signs = _bit_stream(reader, frame, start, signs_sent, 1, kernels) if signed else None
    if reader.at != len(reader.data):
        raise malformed("bytes follow its end")
    table = _reconstruction_values(header, values)
    return lambda out: kernels.ems_dequantize(found, shape, table, offsets, tops, signs, out)


def _in_steps(levels: Array, header: SectionHeader, step: float) -> Array:
    """The top values of stochastic rounding: their levels times the step, in float32."""
    if header.tops and header.low < header.levels:
        raise malformed("a top value is a level that needs no mark")
    with np.errstate(over="ignore"):
        tops: Array = levels.astype(np.float32) * np.float32(step)
    if not np.isfinite(tops).all():
        raise malformed("a top value is infinite")
    return tops


def _bit_stream(reader: ByteReader, frame: Buffer, start: int, n: int, width: int, kernels: Kernels) -> Array:
    at = start + reader.at
    reader.take((n * width + 7) // 8)
    found: Array | None = kernels.ems_unpack_bits(frame, at, n, width)
    if found is None:
        raise malformed("the unused bits at the end of a bit stream are not zero")
    return found


def _levels(
    reader: ByteReader,
    frame: Buffer,
    start: int,
    header: SectionHeader,
    shape: SectionShape,
    kernels: Kernels,
) -> Tensor:
    """The level of each element, stored or entropy-coded."""
    if header.model is None or header.tables is None:
        found = _bit_stream(reader, frame, start, shape.d, header.levels.bit_length(), kernels)
        if int(found.max()) > header.levels:
            raise malformed("a level is higher than there are levels")
        return kernels.own(found.astype(np.uint8))
    at = start + reader.at
    reader.take(2 * sum(header.words))
    decoded: Tensor | None = kernels.ems_rans_decode(
        frame, at, header.words, shape, header.levels, header.model, header.tables
    )
    if decoded is None:
        raise malformed("a block of the mask does not end where it should")
    return decoded


def _reconstruction_values(header: SectionHeader, values: int) -> Array:
    """The float32 value of each level: (activities, levels)."""
    if header.points is None:
        topmin = np.float64(as_float(header.low, values))
        return (np.arange(header.levels) * topmin / np.float64(header.levels)).astype(np.float32)[None]
    return header.points.values()
