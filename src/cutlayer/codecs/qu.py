"""`qu`: uniform quantization."""

import struct
from dataclasses import dataclass, replace
from typing import ClassVar

from cutlayer.codecs import fields
from cutlayer.codecs.base import Codec, Reader, Writer, accept
from cutlayer.codecs.kernels.dispatch import check
from cutlayer.codecs.sparse import scope_field
from cutlayer.codecs.tensors import Tensor

_RANGE = struct.Struct("<ff")


@dataclass(frozen=True)
class Quantization(Codec):
    """Quantize to evenly spaced levels between the smallest and the largest element."""

    name: ClassVar[str] = "qu"
    id: ClassVar[int] = 2
    advice: ClassVar[str] = "simple and fast; one outlier coarsens all levels. stochastic is unbiased"
    signs: ClassVar[bool] = False

    bits: int = fields.integer(3, 1, 16, "bits an element")
    rounding: str = fields.choice(
        "nearest",
        "nearest",
        "stochastic",
        help="to the nearest level, or up and down at random (unbiased)",
    )
    scope: str = scope_field()
    seed: int = fields.seed()

    def payload_bytes(self, shape: tuple[int, ...], signed: bool = False) -> int:
        """ceil(d bits / 8) a section, and its range if each has its own."""
        rows, d = self.sections(shape)
        return rows * ((d * self.bits + 7) // 8 + (_RANGE.size if self.scope == "sample" else 0))

    def side_bytes(self) -> int:
        """The range (lo, hi) is in the header, unless each section has its own."""
        return 0 if self.scope == "sample" else _RANGE.size

    def write(self, x: Tensor, writer: Writer) -> bytes:
        """See `Codec.write`."""
        ranges = writer.kernels.ranges(x)
        accept(max(r.largest for r in ranges), writer)
        own = self.scope == "sample"
        frame, offset = writer.open(
            self,
            self.payload_bytes(writer.source.shape),
            side=b"" if own else _RANGE.pack(ranges[0].lo, ranges[0].hi),
        )
        stochastic = self.rounding == "stochastic"
        writer.kernels.qu_encode(x, ranges, self.bits, stochastic, writer.seed, own, frame, offset)
        return writer.close(frame)

    def read(self, reader: Reader, out: Tensor) -> None:
        """See `Codec.read`."""
        own: tuple[float, float] | None = _RANGE.unpack(reader.side) if reader.side else None
        at = reader.header.payload_offset
        check(reader.kernels.qu_decode(reader.data, at, self.bits, own, out))

    def deterministic(self) -> Codec:
        """Rounding to the nearest."""
        return replace(self, rounding="nearest")
