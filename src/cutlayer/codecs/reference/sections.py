"""Whole sections of `ems`: the compiled kernels do in one call what is done here step by step."""

import sys
from collections.abc import Sequence
from typing import Any

from cutlayer.codecs.entropy.dct_section import DctSection
from cutlayer.codecs.entropy.plain.payload import Payload
from cutlayer.codecs.entropy.plain.section import PlainSection, PlainTarget
from cutlayer.codecs.entropy.section_shape import SectionShape
from cutlayer.codecs.kernels.interface import Kernels
from cutlayer.codecs.tensors import Tensor


def ems_encode_sections(
    x: Tensor, top: Any, rows: range, shape: SectionShape, values: int, signed: bool, target: PlainTarget
) -> tuple[bytes, int] | None:
    """The sections of some rows, and the largest number of levels; None if one cannot meet the target."""
    parts, most = [], 1
    for row in rows:
        found = PlainSection(x, top, row, shape, values, signed, _kernels()).encode(target)
        if found is None:
            return None
        parts.append(found[0])
        most = max(most, found[1])
    return b"".join(parts), most


def ems_encode_dct(
    x: Tensor, shape: SectionShape, values: int, budget: int | None, error: float
) -> tuple[bytes, int] | None:
    """A section of DCT coefficients within a budget or a relative squared error; None if there is none."""
    kernels = _kernels()
    section = DctSection(x, shape, values, kernels)
    if budget is not None:
        return section.within_bytes(budget)
    return section.within_error(error * kernels.ems_energy(x))


def ems_decode_sections(payloads: Sequence[Payload]) -> bool:
    """Decode all sections of one or many payloads into their rows, if that can be done in one call.

    False if not, or if a payload is malformed: the caller then reads section by section, and finds out what
    is wrong. Nothing was written then. The reference always leaves it to the caller.
    """
    return False


def _kernels() -> Kernels:
    """This implementation."""
    found: Any = sys.modules["cutlayer.codecs.reference"]
    return found  # type: ignore[no-any-return]
