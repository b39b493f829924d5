"""The work of `ems` on elements: levels, their contexts and statistics, and back."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import Buffer

from cutlayer.codecs.entropy.context_model import FINE, Model, coarse, grain
from cutlayer.codecs.entropy.frequency_tables import Tables
from cutlayer.codecs.entropy.section_shape import Geometry
from cutlayer.codecs.entropy.trial_rows import Rows
from cutlayer.codecs.reference import bit_packing as stream
from cutlayer.codecs.reference import rans
from cutlayer.codecs.reference.topk import Top
from cutlayer.codecs.tensors import VALUE_DTYPES, tensor_from

Array = NDArray[Any]

PARTS = 64  # a step has so many
ZERO_BELOW, UP_FROM = 38, 35  # in parts: where level 1 begins, and every further one


def ems_tops(x: Tensor, top: Top, row: int, values: int) -> tuple[Tensor, Tensor]:
    """The top values of a row as they travel, as bits (int64 on the CPU), and their places."""
    where = top.mask[row].nonzero()[:, 0]
    kept = x[row][where].to(VALUE_DTYPES[values]).cpu()
    if kept.dtype is torch.float32:
        return kept.view(torch.int32).long() & 0xFFFFFFFF, where
    return kept.view(torch.int16).long() & 0xFFFF, where


def ems_parts(x: Tensor, scale: float) -> Tensor:
    """Magnitudes in parts of a step, as integers. `scale` is a float32: parts in a unit."""
    return (
        (x.abs() * torch.tensor(scale, dtype=torch.float32, device=x.device)).clamp_(max=16383).round().int()
    )


def ems_levels(x: Tensor, scale: float, levels: int, mark_from: float) -> Tensor:
    """The level of each element of a row, at most `levels - 1`, or `levels` from a magnitude on, as uint8."""
    parts = ems_parts(x, scale)
    level = ((parts + (PARTS - UP_FROM)) >> 6).clamp_(min=1, max=levels - 1)
    level = level.masked_fill_(parts < ZERO_BELOW, 0)
    return level.masked_fill_(x.abs() >= mark_from, levels).to(torch.uint8)


def ems_equal_levels(x: Tensor, topmin: float, levels: int, nearest: bool) -> Tensor:
    """The same for levels that are equal parts of Topmin, as in `ms`."""
    quotient = (
        x.abs().double() * levels / torch.tensor(topmin if topmin > 0 else torch.inf, dtype=torch.float64)
    )
    level = quotient.round() if nearest else quotient.floor()
    return level.clamp_(max=levels - 1).to(torch.uint8)


def _planes(levels: Tensor, shape: Geometry) -> Tensor:
    whole = shape.samples * shape.sample
    return pad(levels, (0, whole - shape.d)).view(-1, shape.channels, shape.height, shape.width).int()


def ems_energy(x: Tensor) -> float:
    """The sum of squares of a row.

    In a stated order, so that compiled kernels find the same number: of each 2^16 elements 32 sums, each of
    every 32nd element, which are added up in turn.
    """
    values, total = x.cpu().numpy(), 0.0
    for start in range(0, len(values), 1 << 16):
        chunk = values[start : start + (1 << 16)].astype(np.float64)
        squares = np.pad(chunk * chunk, (0, -len(chunk) % 32)).reshape(-1, 32)
        # Accumulated, not summed: NumPy would add in an order of its own.
        part = 0.0
        for column in np.add.accumulate(squares, axis=0)[-1].tolist():
            part += column
        total += part
    return total


def ems_contexts(
    levels: Tensor, shape: Geometry, rows: Rows, model: Model, most: int
) -> tuple[Tensor, Array]:
    """The quantized prediction of each element (uint8), and how often each level comes with each in the rows
    of planes that count. Predictions are worth nothing if that is not all rows."""
    a = _planes(levels, shape) >> coarse(most)
    framed = pad(a, (1, 1, 1, 0))
    height, width = shape.height, shape.width
    weights = torch.from_numpy(model.weights.astype(np.int32)).to(a.device).view(-1, 5, 1, 1)
    around = ((1, 0), (0, 1), (0, 0), (0, 2))  # left, above, above left, above right, in the framed plane
    p = weights[:, 0] + torch.zeros_like(a)
    for i, (y, x) in enumerate(around):
        p += weights[:, i + 1] * framed[:, :, y : y + height, x : x + width]
    for c in range(model.rows):
        for back, weight in zip(model.distance[c].tolist(), model.parent[c].tolist(), strict=True):
            if back:
                p[:, c] += weight * a[:, c - back]
    quantized = (p >> grain(most)).clamp_(0, FINE - 1).view(-1)[: shape.d]
    joint = (quantized.long() * (most + 1) + levels.long())[_counted(shape, rows, a.device)].cpu()
    counts = joint.bincount(minlength=FINE * (most + 1)).view(FINE, most + 1)
    return quantized.to(torch.uint8), counts.numpy()


def _counted(shape: Geometry, rows: Rows, device: torch.device) -> Tensor:
    """Which elements are in these rows of their planes."""
    row = torch.arange(shape.d, device=device) // shape.width % shape.height
    return (row >= rows[0]) & (row < rows[1])


def _surroundings(levels: Tensor, shape: Geometry, most: int) -> Tensor:
    """What the four neighbours of each element add up to, as one of 16 kinds."""
    a = pad(_planes(levels, shape) >> coarse(most), (1, 1, 1, 1))
    inner = slice(1, -1)
    total = a[:, :, inner, :-2] + a[:, :, inner, 2:] + a[:, :, :-2, inner] + a[:, :, 2:, inner]
    shift = max(0, (4 * (most >> coarse(most))).bit_length() - 4)
    kind: Tensor = (total >> shift).reshape(-1)[: shape.d].long()
    return kind


def ems_sums(
    x: Tensor, levels: Tensor, shape: Geometry, rows: Rows, scale: float, most: int, kinds: int
) -> tuple[Array, int]:
    """By surroundings and level, the number of elements and their parts; of all, the parts squared. Only of
    the rows of planes that count."""
    parts = ems_parts(x, scale).long()
    key = levels.long()
    if kinds > 1:
        key += _surroundings(levels, shape, most) * (most + 1)
    counted = _counted(shape, rows, x.device)
    parts, key, levels = parts[counted], key[counted], levels[counted]
    result = torch.zeros(2, kinds * (most + 1), dtype=torch.int64, device=x.device)
    for row, value in zip(result, (torch.ones_like(parts), parts), strict=True):
        row.scatter_add_(0, key, value)
    sums: Array = result.view(2, kinds, most + 1)[:, :, :most].cpu().numpy()
    return sums, int((parts * parts)[levels != most].sum())


def ems_error(x: Tensor, levels: Tensor, shape: Geometry, scale: float, table: Array) -> int:
    """The squared error, in parts of a step, if levels are decoded to these parts by surroundings and level;
    top values have none."""
    kinds, most = table.shape
    known = torch.from_numpy(np.pad(table.astype(np.int64), ((0, 0), (0, 1)))).to(x.device)
    key = levels.long()
    if kinds > 1:
        key += _surroundings(levels, shape, most) * (most + 1)
    off = ems_parts(x, scale).long() - known.view(-1)[key]
    return int((off * off)[levels != most].sum())


def ems_strips(elements: Tensor, shape: Geometry, where: Array, rows: int) -> Tensor:
    """So many rows of all channels of a sample, from (sample, first row) on; zeros beyond the planes."""
    whole = shape.d // shape.sample * shape.sample
    planes = pad(elements[:whole].view(-1, shape.channels, shape.height, shape.width), (0, 0, 1, rows))
    sample, first = torch.from_numpy(where).to(elements.device).unbind(1)
    # Along samples and rows at once, with channels between them.
    row = first[:, None] + 1 + torch.arange(rows, device=elements.device)
    return planes[sample[:, None], :, row].transpose(1, 2).reshape(-1)


def ems_encode(levels: Tensor, contexts: Tensor, shape: Geometry, tables: Tables) -> tuple[bytes, list[int]]:
    """The coded blocks, and the words of each."""
    return rans.encode(levels.cpu().numpy(), contexts.cpu().numpy(), shape, tables)


def ems_decode(
    frame: Buffer,
    offset: int,
    words: tuple[int, ...],
    shape: Geometry,
    most: int,
    model: Model,
    tables: Tables,
) -> Tensor | None:
    """The levels in coded blocks, or None if they are malformed."""
    raw = bytes(memoryview(frame)[offset : offset + 2 * sum(words)])
    found = rans.decode(raw, words, shape, most, model, tables)
    return None if found is None else torch.from_numpy(found)


def ems_pack(codes: Tensor, width: int) -> Buffer:
    """Codes (int64) of up to 32 bits as a bit stream."""
    bits = (codes.unsqueeze(-1) >> torch.arange(width, device=codes.device)) & 1
    return stream.pack(bits.view(1, -1), 1).cpu().numpy().data


def ems_unpack(frame: Buffer, offset: int, n: int, width: int) -> Tensor | None:
    """Codes (int64) from a bit stream, or None if its last bits are not zero."""
    raw = tensor_from(frame, offset, stream.size(n, width)).unsqueeze(0)
    if n == 0 or width == 0:
        return torch.zeros(n, dtype=torch.int64)
    if not stream.padded_with_zeros(raw, n, width):
        return None
    bits = stream.unpack(raw, n * width, 1).view(n, width).long()
    return (bits << torch.arange(width)).sum(-1)


def ems_signs(x: Tensor, levels: Tensor, mark: int) -> bytes:
    """A bit for each element with a level above 0 that is not a top value: 1 if it is negative."""
    negative = (x < 0)[(levels > 0) & (levels < mark)]
    return stream.pack(negative.unsqueeze(0), 1).cpu().numpy().tobytes() if negative.numel() else b""


def ems_starts(levels: Tensor, shape: Geometry, most: int, signed: bool) -> Tensor:
    """How many elements before each sample, and in all, are marked (first row), or have a sign sent."""
    samples = pad(levels, (0, shape.samples * shape.sample - shape.d)).view(shape.samples, shape.sample)
    marked, among = samples == most, (samples > 0) & (samples < most) & signed
    return pad(torch.stack([marked.sum(1), among.sum(1)]).cumsum(1), (1, 0))


def ems_rebuild(
    levels: Tensor,
    shape: Geometry,
    table: Array,
    starts: Tensor,
    tops: Tensor,
    signs: Tensor | None,
    out: Tensor,
) -> None:
    """Elements from levels: `table` has the value of each level by surroundings, `tops` the marked ones.

    `starts` say which of them are whose, to those who work on samples side by side.
    """
    kinds, most = table.shape
    levels = levels.to(out.device)
    known = torch.from_numpy(np.concatenate([table, np.zeros((kinds, 1), np.float32)], axis=1)).to(out.device)
    key = levels.long()
    if kinds > 1:
        key += _surroundings(levels, shape, most) * (most + 1)
    y = known.view(-1)[key]
    if signs is not None:
        among = (levels > 0) & (levels < most)
        y[among] = torch.where(signs.to(out.device) > 0, -y[among], y[among])
    y[levels == most] = tops.to(out.device)
    out.copy_(y)
