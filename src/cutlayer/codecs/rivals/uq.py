"""`uq`: a control, the plainest uniform quantizer with the entropy coder of `ems`."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs import fields, frame
from cutlayer.codecs.base import Codec, Reader, Writer, accept, kept
from cutlayer.codecs.entropy.layout import MAX_LEVELS
from cutlayer.codecs.entropy.payload_reader import read_sections
from cutlayer.codecs.entropy.section_shape import section_shape
from cutlayer.codecs.entropy.stochastic_section import StochasticSection
from cutlayer.codecs.sparse import scope_field
from cutlayer.codecs.tensors import Tensor, count, host
from cutlayer.errors import HeaderError, ParameterError

_TOP_RATIO = 0.995  # levels without a mark reach a little beyond this quantile
_DEFAULT_BPE = 1.0


class NearestSection(StochasticSection):
    """The section of stochastic rounding, with levels that are rounded to the nearest."""

    def rounded(self, elements: Tensor, step: float, n_levels: int, stream: int) -> Tensor:
        """See `StochasticSection`."""
        found = self._nearest(elements, step).clip(max=n_levels)
        return found.astype(np.uint8) if isinstance(found, np.ndarray) else found.byte()

    def top_levels(self, levels: Tensor, step: float, n_levels: int) -> NDArray[Any]:
        """See `StochasticSection`."""
        marked = host(self.x[levels == n_levels])
        found: NDArray[Any] = (self._nearest(marked, step) * np.sign(marked)).astype(np.int64)
        return found

    def _nearest(self, elements: Tensor, step: float) -> Tensor:
        return (abs(elements) * self.scale(step)).round()


@dataclass(frozen=True)
class UniformQuantization(Codec):
    """Round to multiples of a step and entropy-code: no dead zone, no top values, no means of levels.

    Its frames hold sections of `ems:rounding=stochastic`, so that only the quantizer differs.
    """

    name: ClassVar[str] = "uq"
    id: ClassVar[int] = 36
    advice: ClassVar[str] = "a control: a uniform quantizer with the entropy coder of ems"
    fixed_size: ClassVar[bool] = False

    bpe: float = fields.real(0.0, 0, 64, "about so many bits an element", shown=False, in_header=False)
    step: float = fields.real(
        0.0, 0, 1024, "quantizer step, in multiples of the root mean square", shown=False, in_header=False
    )
    levels: int = fields.integer(0, 0, MAX_LEVELS, "levels without a mark, in frames", shown=False)
    scope: str = scope_field()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bpe and self.step:
            raise ParameterError("uq: give one of bpe and step, not both")
        if not (self.bpe or self.step or self.levels):
            object.__setattr__(self, "bpe", _DEFAULT_BPE)

    def payload_bytes(self, shape: tuple[int, ...], signed: bool = False) -> int:
        """See `Codec.payload_bytes`. With `bpe` the budget, which is a target; else 7 bits an element."""
        rows, d = self.sections(shape)
        return math.floor((self.bpe or 7 + signed) * rows * d / 8) + rows * 256

    def write(self, x: Tensor, writer: Writer) -> bytes:
        """See `Codec.write`."""
        top: Any = writer.kernels.select_top(x, kept(_TOP_RATIO, x.shape[1]))
        accept(top.largest, writer)
        shape, signed = section_shape(writer.source.shape, len(x)), bool(top.negative)
        header = frame.build(self.id, writer.source.dtype, signed, writer.source.shape, self.block(), 0)
        budget = (math.floor(self.bpe * count(x) / 8) - len(header)) // len(x)
        found = []
        for row in range(len(x)):
            section = NearestSection(x, top, row, signed, shape, writer)
            step = (self.step or 1.0) * section.spread or 1.0
            found.append(section.within_bytes(budget) if self.bpe else section.at_step(step))
        decided = replace(self, bpe=0.0, step=0.0, levels=max(n for _, n in found))
        opened, offset = writer.open(decided, sum(len(part) for part, _ in found), signed=signed)
        for part, _ in found:
            writer.kernels.put_bytes(opened, offset, part)
            offset += len(part)
        return writer.close(opened)

    def read(self, reader: Reader, out: Tensor) -> None:
        """See `Codec.read`."""
        if not self.levels:
            raise HeaderError("a uq frame says how many levels it has; this one says 0")
        read_sections(reader, out, self.levels, "stochastic", 0)
