"""Whole sections of `ems` in one compiled call: rate control, coding and the section's header."""

from functools import lru_cache
from typing import Any

from typing_extensions import Buffer

from cutlayer import _native as _n
from cutlayer.codecs.entropy.frequency_tables import COST
from cutlayer.codecs.entropy.plain_section import PlainTarget
from cutlayer.codecs.entropy.section_shape import SectionShape
from cutlayer.codecs.entropy.trial_rows import trial_rows
from cutlayer.codecs.kernels import threads
from cutlayer.codecs.kernels.native_memory import address
from cutlayer.codecs.tensors import Tensor

_ROUNDINGS = {"floor": 0, "nearest": 1, "mean": 2, "stochastic": 3}
_NO_BUDGET = -1


@lru_cache(maxsize=256)
def _sizes(shape: SectionShape) -> list[int]:
    return [shape.d, shape.channels, shape.height, shape.width, shape.per_lane * shape.sample]


@lru_cache(maxsize=256)
def _trial(shape: SectionShape) -> tuple[list[int], int]:
    """The trial rows as sizes, and the address of their positions, which the cache keeps alive."""
    rows = trial_rows(shape)
    return [*_sizes(rows.shape), *rows.rows], 0 if rows.where is None else address(rows.where)


def ems_encode_sections(
    x: Tensor, top: Any, rows: range, shape: SectionShape, values: int, signed: bool, target: PlainTarget
) -> tuple[bytes, int] | None:
    """See `codecs.reference`."""
    budget = _NO_BUDGET if target.budget is None else max(0, target.budget)
    wanted = (budget, target.error, target.step, target.levels, _ROUNDINGS[target.rounding])
    how = (rows.start, rows.stop, _sizes(shape), *_trial(shape), values, signed, address(COST))
    found: tuple[bytes, int] | None = _n.ems_encode_sections(address(x), top, *how, *wanted, threads.number())
    return found


def ems_decode_sections(
    frame: Buffer,
    offset: int,
    shape: SectionShape,
    levels: int,
    rounding: str,
    values: int,
    signed: bool,
    out: Tensor,
) -> bool:
    """See `codecs.reference`."""
    data = memoryview(frame)
    how = (out.shape[0], _sizes(shape), levels, _ROUNDINGS[rounding], values, signed)
    at = (address(data) + offset, len(data) - offset)
    return bool(_n.ems_decode_sections(*at, *how, address(out), threads.number()))
