"""`ems`: quantization, contexts, statistics, bit packing and reconstruction.

`levels` are uint8, one row. A level of `n_levels` marks a top value. Magnitudes are measured in fixed point,
in 1/64 of a step; `scale` is the float32 factor to it. `activities` is 16, or 1 where reconstruction does not
depend on activity.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import Buffer

from cutlayer.codecs.entropy.context_model import PREDICTIONS, ContextModel, level_shift, prediction_shift
from cutlayer.codecs.entropy.frequency_tables import FrequencyTables
from cutlayer.codecs.entropy.section_shape import SectionShape
from cutlayer.codecs.entropy.trial_rows import Rows
from cutlayer.codecs.reference import bit_packing as stream
from cutlayer.codecs.reference import rans
from cutlayer.codecs.reference.frame_buffer import VALUE_DTYPES
from cutlayer.codecs.reference.topk import Top
from cutlayer.codecs.tensors import in_torch, tensor_from

Array = NDArray[Any]

UNITS_PER_STEP = 64
DEAD_ZONE, ROUND_UP_FROM = 38, 35  # see `entropy.section_writer`


def ems_top_values(x: Tensor, top: Top, row: int, values: int) -> tuple[Array, Tensor]:
    """The top values of a row as bits of their type (int64), and their positions."""
    where = top.mask[row].nonzero()[:, 0]
    kept = x[row][where].to(VALUE_DTYPES[values]).cpu()
    if kept.dtype is torch.float32:
        return (kept.view(torch.int32).long() & 0xFFFFFFFF).numpy(), where
    return (kept.view(torch.int16).long() & 0xFFFF).numpy(), where


def fixed_point(x: Tensor, scale: float) -> Tensor:
    """Magnitudes in 1/64 of a step, as integers up to 16383."""
    return (
        (x.abs() * torch.tensor(scale, dtype=torch.float32, device=x.device)).clamp_(max=16383).round().int()
    )


def ems_quantize(x: Tensor, scale: float, n_levels: int, mark_from: float) -> Tensor:
    """Quantize with a dead zone: levels up to `n_levels - 1`. Magnitudes from `mark_from` on get the mark."""
    units = fixed_point(x, scale)
    level = ((units + (UNITS_PER_STEP - ROUND_UP_FROM)) >> 6).clamp_(min=1, max=n_levels - 1)
    level = level.masked_fill_(units < DEAD_ZONE, 0)
    return level.masked_fill_(x.abs() >= mark_from, n_levels).to(torch.uint8)


def ems_quantize_evenly(x: Tensor, topmin: float, n_levels: int, nearest: bool) -> Tensor:
    """Quantize as in `ms`: levels are equal units of Topmin."""
    quotient = (
        x.abs().double() * n_levels / torch.tensor(topmin if topmin > 0 else torch.inf, dtype=torch.float64)
    )
    level = quotient.round() if nearest else quotient.floor()
    return level.clamp_(max=n_levels - 1).to(torch.uint8)


def _planes(levels: Tensor, shape: SectionShape) -> Tensor:
    """Levels as (samples, channels, height, width); a short last sample is filled with zeros."""
    whole = shape.samples * shape.sample
    return pad(levels, (0, whole - shape.d)).view(-1, shape.channels, shape.height, shape.width).int()


def ems_energy(x: Tensor) -> float:
    """The sum of squares of a row.

    The order of additions is part of the definition, so that both implementations find the same number: each
    chunk of 2^16 elements has 32 sums, each over every 32nd element, which are then added in order.
    """
    values, total = x.cpu().numpy(), 0.0
    for start in range(0, len(values), 1 << 16):
        chunk = values[start : start + (1 << 16)].astype(np.float64)
        squares = np.pad(chunk * chunk, (0, -len(chunk) % 32)).reshape(-1, 32)
        # np.sum would add in an order of its own; accumulate does not.
        part = 0.0
        for column in np.add.accumulate(squares, axis=0)[-1].tolist():
            part += column
        total += part
    return total


def ems_contexts(
    levels: Tensor, shape: SectionShape, rows: Rows, model: ContextModel, n_levels: int
) -> tuple[Tensor, Array]:
    """The context of each element, its quantized prediction (uint8), and a histogram of levels by context.

    Only the counted `rows` of planes are in the histogram. Contexts are valid only if all rows are counted.
    """
    a = _planes(levels, shape) >> level_shift(n_levels)
    padded = pad(a, (1, 1, 1, 0))
    height, width = shape.height, shape.width
    weights = torch.from_numpy(model.weights.astype(np.int32)).to(a.device).view(-1, 5, 1, 1)
    around = ((1, 0), (0, 1), (0, 0), (0, 2))  # left, above, above left, above right, in the padded plane
    p = weights[:, 0] + torch.zeros_like(a)
    for i, (y, x) in enumerate(around):
        p += weights[:, i + 1] * padded[:, :, y : y + height, x : x + width]
    for c in range(model.rows):
        for back, weight in zip(model.distance[c].tolist(), model.parent[c].tolist(), strict=True):
            if back:
                p[:, c] += weight * a[:, c - back]
    quantized = (p >> prediction_shift(n_levels)).clamp_(0, PREDICTIONS - 1).view(-1)[: shape.d]
    joint = (quantized.long() * (n_levels + 1) + levels.long())[_counted(shape, rows, a.device)].cpu()
    counts = joint.bincount(minlength=PREDICTIONS * (n_levels + 1)).view(PREDICTIONS, n_levels + 1)
    return quantized.to(torch.uint8), counts.numpy()


def _counted(shape: SectionShape, rows: Rows, device: torch.device) -> Tensor:
    """Which elements lie in these rows of their planes."""
    row = torch.arange(shape.d, device=device) // shape.width % shape.height
    return (row >= rows[0]) & (row < rows[1])


def _activity(levels: Tensor, shape: SectionShape, n_levels: int) -> Tensor:
    """The activity of each element: the sum of its four neighbours' levels, quantized to 16 values."""
    a = pad(_planes(levels, shape) >> level_shift(n_levels), (1, 1, 1, 1))
    inner = slice(1, -1)
    total = a[:, :, inner, :-2] + a[:, :, inner, 2:] + a[:, :, :-2, inner] + a[:, :, 2:, inner]
    shift = max(0, (4 * (n_levels >> level_shift(n_levels))).bit_length() - 4)
    kind: Tensor = (total >> shift).reshape(-1)[: shape.d].long()
    return kind


def ems_level_sums(
    x: Tensor, levels: Tensor, shape: SectionShape, rows: Rows, scale: float, n_levels: int, activities: int
) -> tuple[Array, int]:
    """By activity and level, the number of elements and the sum of magnitudes; and the sum of all squares.

    Magnitudes are in 1/64 of a step. Only elements in the counted `rows` are included, and no top values.
    """
    units = fixed_point(x, scale).long()
    key = levels.long()
    if activities > 1:
        key += _activity(levels, shape, n_levels) * (n_levels + 1)
    counted = _counted(shape, rows, x.device)
    units, key, levels = units[counted], key[counted], levels[counted]
    result = torch.zeros(2, activities * (n_levels + 1), dtype=torch.int64, device=x.device)
    for row, value in zip(result, (torch.ones_like(units), units), strict=True):
        row.scatter_add_(0, key, value)
    sums: Array = result.view(2, activities, n_levels + 1)[:, :, :n_levels].cpu().numpy()
    return sums, int((units * units)[levels != n_levels].sum())


def ems_squared_error(x: Tensor, levels: Tensor, shape: SectionShape, scale: float, table: Array) -> int:
    """The squared error, in (1/64 of a step)^2, with the reconstruction points `table` (activities, levels).

    Top values have no error.
    """
    activities, n_levels = table.shape
    known = torch.from_numpy(np.pad(table.astype(np.int64), ((0, 0), (0, 1)))).to(x.device)
    key = levels.long()
    if activities > 1:
        key += _activity(levels, shape, n_levels) * (n_levels + 1)
    off = fixed_point(x, scale).long() - known.view(-1)[key]
    return int((off * off)[levels != n_levels].sum())


def ems_gather_rows(elements: Tensor, shape: SectionShape, where: Array, rows: int) -> Tensor:
    """Gather strips: `rows` rows of all channels of a sample, from each (sample, first row) in `where` on.

    Rows beyond the planes are zeros.
    """
    whole = shape.d // shape.sample * shape.sample
    planes = pad(elements[:whole].view(-1, shape.channels, shape.height, shape.width), (0, 0, 1, rows))
    sample, first = torch.from_numpy(where).to(elements.device).unbind(1)
    # Indexing by sample and row at once moves the channels behind both; transpose moves them back.
    row = first[:, None] + 1 + torch.arange(rows, device=elements.device)
    return planes[sample[:, None], :, row].transpose(1, 2).reshape(-1)


def ems_rans_encode(
    levels: Tensor, contexts: Tensor, shape: SectionShape, tables: FrequencyTables
) -> tuple[bytes, list[int]]:
    """Entropy-code levels with rANS. Returns the blocks, and the number of 16-bit words of each."""
    return rans.encode(levels.cpu().numpy(), contexts.cpu().numpy(), shape, tables)


def ems_rans_decode(
    frame: Buffer,
    offset: int,
    words: tuple[int, ...],
    shape: SectionShape,
    n_levels: int,
    model: ContextModel,
    tables: FrequencyTables,
) -> Tensor | None:
    """Decode rANS blocks to levels, or None if they are malformed."""
    raw = bytes(memoryview(frame)[offset : offset + 2 * sum(words)])
    found = rans.decode(raw, words, shape, n_levels, model, tables)
    return None if found is None else torch.from_numpy(found)


def ems_pack_bits(codes: Any, width: int) -> Buffer:
    """Pack codes of up to 32 bits (int64, or levels) into a bit stream."""
    codes = in_torch(codes).long()
    bits = (codes.unsqueeze(-1) >> torch.arange(width, device=codes.device)) & 1
    return stream.pack(bits.view(1, -1), 1).cpu().numpy().data


def ems_unpack_bits(frame: Buffer, offset: int, n: int, width: int) -> Array | None:
    """Unpack codes (int64) from a bit stream, or None if its unused bits are not zero."""
    raw = tensor_from(frame, offset, stream.size(n, width)).unsqueeze(0)
    if n == 0 or width == 0:
        return np.zeros(n, np.int64)
    if not stream.padded_with_zeros(raw, n, width):
        return None
    bits = stream.unpack(raw, n * width, 1).view(n, width).long()
    return (bits << torch.arange(width)).sum(-1).numpy()


def ems_pack_signs(x: Tensor, levels: Tensor, n_levels: int) -> bytes:
    """Pack a sign bit (1: negative) for each element whose level is above 0 and that is not a top value."""
    negative = (x < 0)[(levels > 0) & (levels < n_levels)]
    return stream.pack(negative.unsqueeze(0), 1).cpu().numpy().tobytes() if negative.numel() else b""


def ems_sample_offsets(levels: Tensor, shape: SectionShape, n_levels: int, signed: bool) -> Tensor:
    """Where each sample's top values (row 0) and sign bits (row 1) begin; last, where they all end."""
    samples = pad(levels, (0, shape.samples * shape.sample - shape.d)).view(shape.samples, shape.sample)
    marked, among = samples == n_levels, (samples > 0) & (samples < n_levels) & signed
    return pad(torch.stack([marked.sum(1), among.sum(1)]).cumsum(1), (1, 0))


def ems_dequantize(
    levels: Tensor,
    shape: SectionShape,
    table: Array,
    offsets: Tensor,
    tops: Array,
    signs: Array | None,
    out: Tensor,
) -> None:
    """Decode levels to elements: `table` has the value of each level by activity, `tops` the top values.

    `offsets` (from `ems_sample_offsets`) lets the compiled kernel decode samples in parallel; not needed
    here.
    """
    activities, n_levels = table.shape
    levels = levels.to(out.device)
    known = torch.from_numpy(np.concatenate([table, np.zeros((activities, 1), np.float32)], axis=1)).to(
        out.device
    )
    key = levels.long()
    if activities > 1:
        key += _activity(levels, shape, n_levels) * (n_levels + 1)
    y = known.view(-1)[key]
    if signs is not None:
        among = (levels > 0) & (levels < n_levels)
        y[among] = torch.where(in_torch(signs).to(out.device) > 0, -y[among], y[among])
    y[levels == n_levels] = in_torch(tops).to(out.device)
    out.copy_(y)
