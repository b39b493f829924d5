"""What a decoder must know of an `ems` frame besides its bytes, and where the elements go."""

from dataclasses import dataclass

from typing_extensions import Buffer

from cutlayer.codecs.entropy.section_shape import SectionShape
from cutlayer.codecs.tensors import Tensor


@dataclass(slots=True)
class Payload:
    """The payload of a frame: from `offset` to its end."""

    frame: Buffer
    offset: int
    shape: SectionShape  # of each section
    levels: int
    rounding: str
    values: int
    signed: bool
    out: Tensor  # a row for each section
