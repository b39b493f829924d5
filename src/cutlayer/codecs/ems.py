"""`ems`: entropy-coded mask sparsification."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from cutlayer.codecs import fields, frame
from cutlayer.codecs.base import Codec, Reader, Writer, accept, kept
from cutlayer.codecs.entropy import rate_control as search
from cutlayer.codecs.entropy.dct import transformable
from cutlayer.codecs.entropy.dct_section import Transform, read, squared_error
from cutlayer.codecs.entropy.layout import MOST_LEVELS, Cursor, wrong
from cutlayer.codecs.entropy.section_shape import Geometry, geometry
from cutlayer.codecs.entropy.section_writer import SectionWriter
from cutlayer.codecs.kernels.dispatch import Kernels
from cutlayer.codecs.sparse import ratio_field, scope_field
from cutlayer.codecs.tensors import VALUE_DTYPES, VALUE_NAMES
from cutlayer.errors import HeaderError, ParameterError

_DEFAULT_BPE = 1.0
_LOST = (0.0, 2.0**-22, 2.0**-18)  # of a top value squared, at most, by travelling
_USED = 0.9  # of a budget: good enough
_MOST_TOPS = 64  # one element in so many may become four top values
_HEAD = 32  # bytes of a section before its streams, when its mask is stored, without the means


@dataclass(frozen=True)
class EntropyCodedMask(Codec):
    """The mask of `ms`, with any number of levels, in as many bits as it carries.

    Levels are decoded to their means, and the mask is coded with statistics that depend on levels already
    known. Ask for a rate (`bpe`), an error (`error`) or `levels`; without any, it is one bit an element.
    """

    name: ClassVar[str] = "ems"
    id: ClassVar[int] = 8
    advice: ClassVar[str] = "the fewest bits at equal error; give bpe=, error= or levels="
    fixed_size: ClassVar[bool] = False

    bpe: float = fields.real(
        0.0, 0, 64, "at most so many bits an element, header included", shown=False, travels=False
    )
    error: float = fields.real(
        0.0, 0, 1, "at most this relative squared error, in the fewest bytes", shown=False, travels=False
    )
    ratio: float = ratio_field(0.995, shown=False)
    levels: int = fields.integer(0, 0, MOST_LEVELS, "levels below the top values", shown=False)
    rounding: str = fields.choice(
        "mean", "floor", "nearest", "mean", help="levels decode to their means, or exactly as in ms"
    )
    values: str = fields.choice("float16", *VALUE_NAMES, help="type of the top values on the wire")
    scope: str = scope_field()
    transform: str = fields.choice(
        "none",
        "none",
        "dct",
        "auto",
        help="code elements, cosines of blocks, or what is better",
        travels=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        asked = [n for n in ("bpe", "error", "levels") if getattr(self, n)]
        if len(asked) > 1:
            raise ParameterError(f"ems: give one of bpe, error and levels, not {' and '.join(asked)}")
        if self.rounding != "mean" and not self.levels:
            raise ParameterError(
                f"ems: rounding={self.rounding} needs levels=, as in ems:levels=3,rounding=nearest"
            )
        if self.transform != "none" and self.levels:
            raise ParameterError(f"ems: transform={self.transform} needs bpe= or error=, not levels=")
        if not asked:
            object.__setattr__(self, "bpe", _DEFAULT_BPE)

    @property
    def _values(self) -> int:
        return VALUE_NAMES.index(self.values)

    def payload_bytes(self, shape: tuple[int, ...], signed: bool = False) -> int:
        """The most that a payload takes with `levels`: as much as `ms`, and the heads of sections.

        With `bpe` it is what was asked for, and with `error` what the most levels would take.
        """
        rows, d = self.sections(shape)
        if self.bpe:
            return math.floor(self.bpe * rows * d / 8)
        levels = self.levels or MOST_LEVELS
        values = kept(self.ratio, d) * VALUE_DTYPES[self._values].itemsize
        return rows * ((d * (levels.bit_length() + signed) + 7) // 8 + values + _HEAD + 16 * levels)

    def write(self, x: Tensor, writer: Writer) -> bytes:
        """See `Codec.write`."""
        shape = geometry(writer.source.shape, x.shape[0])
        k = kept(self.ratio, x.shape[1])
        if self.bpe:  # top values take at most an eighth of what there is
            k = max(1, min(k, int(self.bpe * shape.d / 128)))
        parts, levels, signed = self._sections(x, writer, shape, k)
        made = replace(self, bpe=0.0, error=0.0, levels=levels, transform="none")
        opened, offset = writer.open(made, sum(map(len, parts)), signed=signed)
        for part in parts:
            writer.kernels.put_bytes(opened, offset, part)
            offset += len(part)
        return writer.close(opened)

    def _sections(self, x: Tensor, writer: Writer, shape: Geometry, k: int) -> tuple[list[bytes], int, bool]:
        """All sections, the most levels that any has, and whether there are negative values."""
        top: Any = writer.kernels.select_top(x, k)
        accept(top.largest, writer, VALUE_DTYPES[self._values])
        signed = bool(top.negative)
        source = writer.source
        header = frame.build(self.id, source.given.dtype, signed, source.shape, self.block(), 0)
        budget = (math.floor(self.bpe * x.numel() / 8) - len(header)) // len(x)
        parts, most = [], 1
        for row in range(len(x)):
            found = self._transformed(x[row], shape, budget, writer.kernels)
            if found is None or self.transform == "auto":
                section = SectionWriter(x, top, row, self._values, signed, shape, writer.kernels)
                plain = self._plain(x[row], section, budget)
                found = plain if found is None else self._better(plain, found, x[row], section)
            parts.append(found[0])
            most = max(most, found[1])
        return parts, most, signed

    def _transformed(self, x: Tensor, shape: Geometry, budget: int, kernels: Kernels) -> search.Made | None:
        """A section of coefficients, if that is asked for and can be had."""
        if self.transform == "none" or not transformable(shape):
            return None
        transform = Transform(x, shape, self._values, kernels)
        if self.bpe:
            return transform.within_bytes(budget)
        return transform.within_error(self.error * kernels.ems_energy(x))

    def _better(self, a: search.Made, b: search.Made, x: Tensor, section: SectionWriter) -> search.Made:
        """The smaller one; with a rate, the one of less error."""
        if self.error:
            return min(a, b, key=lambda made: len(made[0]))
        how = (x, section.shape, self._values, section.signed, section.kernels)
        return min(a, b, key=lambda made: squared_error(made, *how))

    def _plain(self, x: Tensor, section: SectionWriter, budget: int) -> search.Made:
        """A section of elements."""
        if self.levels:
            return search.with_levels(section, self.levels, self.rounding), self.levels
        if self.bpe:
            return self._within_bytes(x, section, budget)
        while not (found := search.within_error(section, self._squared(x, section))):
            # No levels are fine enough: more top values.
            section = self._with_tops(x, section, self._more(section.count, section.shape.d))
        return found

    def _within_bytes(self, x: Tensor, section: SectionWriter, budget: int) -> search.Made:
        best: search.Made | None = None
        while True:
            made, count = search.within_bytes(section, budget), section.count
            if len(made[0]) <= budget and (best is None or len(made[0]) > len(best[0])):
                best = made
                # With bytes to spare and no more levels to spend them on, there can be more top values.
                spare = made[1] == MOST_LEVELS and len(made[0]) < _USED * budget
                if not spare or count > section.shape.d // _MOST_TOPS:
                    return best
                count *= 4
            elif best or count == 1:
                return best or made
            else:
                count = max(1, count // 4)
            section = self._with_tops(x, section, count)

    def _with_tops(self, x: Tensor, section: SectionWriter, count: int) -> SectionWriter:
        """The same elements with another number of top values."""
        again = section.kernels.select_top(x.view(1, -1), count)
        how = (self._values, section.signed, section.shape, section.kernels)
        return SectionWriter(x.view(1, -1), again, 0, *how)

    def _more(self, count: int, d: int) -> int:
        if count == d:
            raise ParameterError(
                f"ems: error={self.error} is less than values={self.values} leaves; "
                "use values=float32 or allow more"
            )
        return min(d, 4 * count)

    def _squared(self, x: Tensor, section: SectionWriter) -> float:
        """The squared error that `error` leaves to the mask of a section."""
        total = section.kernels.ems_energy(x)
        return (self.error - _LOST[self._values]) * total - section.count * (
            2.0**-50 if self.values == "float16" else 0.0
        )

    def read(self, reader: Reader, out: Tensor) -> None:
        """See `Codec.read`."""
        if not self.levels:
            raise HeaderError("an ems frame says how many levels it has; this one says 0")
        shape = geometry(reader.header.shape, out.shape[0])
        cursor = Cursor(reader.payload)
        work = []
        for _ in range(len(out)):  # all is checked before anything is written
            size = cursor.varint(len(reader.payload))
            start = reader.header.payload_offset + cursor.at
            body = Cursor(cursor.take(size))
            how = (self.levels, self.rounding == "mean", self._values, reader.header.signed)
            work.append(read(body, reader.data, start, shape, *how, reader.kernels))
        if cursor.at != len(reader.payload):
            raise wrong("bytes follow its end")
        for row, rebuild in zip(out, work, strict=True):
            rebuild(row)
