"""Whole sections of `ems` in one compiled call: rate control, coding and the section's header."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from cutlayer import _native as _n
from cutlayer.codecs.entropy.dct import coefficient_shape
from cutlayer.codecs.entropy.frequency_tables import COST
from cutlayer.codecs.entropy.plain.payload import Payload
from cutlayer.codecs.entropy.plain.section import PlainTarget
from cutlayer.codecs.entropy.section_shape import SectionShape
from cutlayer.codecs.entropy.trial_rows import TrialRows, trial_rows
from cutlayer.codecs.kernels import threads
from cutlayer.codecs.kernels.native_memory import address
from cutlayer.codecs.tensors import Tensor

_ROUNDINGS = {"floor": 0, "nearest": 1, "mean": 2, "stochastic": 3}
_NO_BUDGET = -1


@lru_cache(maxsize=256)
def _sizes(shape: SectionShape) -> list[int]:
    return [shape.d, shape.channels, shape.height, shape.width, shape.per_lane * shape.sample]


@lru_cache(maxsize=256)
def _kept_trial(shape: SectionShape) -> tuple[list[int], int, TrialRows]:
    """The trial rows as sizes, and the address of their positions, with what keeps these alive."""
    rows = trial_rows(shape)
    return [*_sizes(rows.shape), *rows.rows], 0 if rows.where is None else address(rows.where), rows


def ems_encode_sections(
    x: Tensor, top: Any, rows: range, shape: SectionShape, values: int, signed: bool, target: PlainTarget
) -> tuple[bytes, int] | None:
    """See `codecs.reference`."""
    budget = _NO_BUDGET if target.budget is None else max(0, target.budget)
    wanted = (budget, target.error, target.step, target.levels, _ROUNDINGS[target.rounding])
    sizes, where, _kept = _kept_trial(shape)
    how = (rows.start, rows.stop, _sizes(shape), sizes, where, values, signed, address(COST))
    found: tuple[bytes, int] | None = _n.ems_encode_sections(address(x), top, *how, *wanted, threads.number())
    return found


def ems_encode_dct(
    x: Tensor, shape: SectionShape, values: int, budget: int | None, error: float
) -> tuple[bytes, int] | None:
    """See `codecs.reference`."""
    wanted = (_NO_BUDGET if budget is None else max(0, budget), error)
    sizes, where, _kept = _kept_trial(coefficient_shape(shape))
    how = (_sizes(shape), sizes, where, values, address(COST))
    found: tuple[bytes, int] | None = _n.ems_encode_dct(address(x), *how, *wanted, threads.number())
    return found


def ems_decode_sections(payloads: Sequence[Payload]) -> bool:
    """See `codecs.reference`."""
    given = [
        [
            address(p.frame) + p.offset,
            memoryview(p.frame).nbytes - p.offset,
            p.out.shape[0],
            p.levels,
            _ROUNDINGS[p.rounding],
            p.values,
            p.signed,
            address(p.out),
            *_sizes(p.shape),
        ]
        for p in payloads
    ]
    return bool(_n.ems_decode_sections(given, threads.number()))
