"""`ms`: mask-encoded sparsification, the method of the paper."""

from dataclasses import dataclass
from typing import ClassVar

from cutlayer.codecs import fields
from cutlayer.codecs.base import Codec, Reader, Writer, accept, kept
from cutlayer.codecs.kernels.dispatch import check
from cutlayer.codecs.sparse import ratio_field, scope_field, values_field
from cutlayer.codecs.tensors import VALUE_DTYPES, VALUE_NAMES, Tensor


@dataclass(frozen=True)
class MaskEncodedSparsification(Codec):
    """Keep the k largest magnitudes exactly, and quantize all other elements to a few bits.

    Every element gets a mask of `bits` bits. All ones marks a top value. Any other mask m decodes to
    m / (2^bits - 1) of the smallest top value.
    """

    name: ClassVar[str] = "ms"
    id: ClassVar[int] = 4
    advice: ClassVar[str] = "the paper's method, and fast; rounding=nearest has less error"

    ratio: float = ratio_field(0.99)
    bits: int = fields.integer(2, 1, 16, "mask bits an element")
    rounding: str = fields.choice(
        "floor", "floor", "nearest", help="floor as printed in the paper, or nearest as in its code"
    )
    values: str = values_field()
    scope: str = scope_field()

    @property
    def _values(self) -> int:
        return VALUE_NAMES.index(self.values)

    def payload_bytes(self, shape: tuple[int, ...], signed: bool = False) -> int:
        """ceil(d (bits + signed) / 8) + k values, a section."""
        rows, d = self.sections(shape)
        values = kept(self.ratio, d) * VALUE_DTYPES[self._values].itemsize
        return rows * ((d * (self.bits + signed) + 7) // 8 + values)

    def write(self, x: Tensor, writer: Writer) -> bytes:
        """See `Codec.write`."""
        top = writer.kernels.select_top(x, kept(self.ratio, x.shape[1]))
        accept(top.largest, writer, VALUE_DTYPES[self._values])
        signed = top.negative
        frame, offset = writer.open(self, self.payload_bytes(writer.source.shape, signed), signed=signed)
        nearest = self.rounding == "nearest"
        writer.kernels.ms_encode(x, top, self.bits, nearest, signed, self._values, frame, offset)
        return writer.close(frame)

    def read(self, reader: Reader, out: Tensor) -> None:
        """See `Codec.read`."""
        k = kept(self.ratio, out.shape[1])
        at = reader.header.payload_offset
        signed = reader.header.signed
        check(reader.kernels.ms_decode(reader.data, at, k, self.bits, signed, self._values, out))
