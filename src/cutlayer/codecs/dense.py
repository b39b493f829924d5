"""`dense`: no compression, the baseline."""

from dataclasses import dataclass
from typing import ClassVar

from cutlayer.codecs import fields
from cutlayer.codecs.base import Codec, Reader, Writer, finite
from cutlayer.codecs.kernels.dispatch import check
from cutlayer.codecs.kernels.float_types import FLOAT32, FloatType
from cutlayer.codecs.tensors import VALUE_DTYPES, VALUE_NAMES, Tensor, count, from_wire, to_wire


@dataclass(frozen=True)
class Dense(Codec):
    """Send all elements, in float32, float16 or bfloat16."""

    name: ClassVar[str] = "dense"
    id: ClassVar[int] = 1
    advice: ClassVar[str] = "the baseline; dtype=float16 halves the bytes at almost no error"
    signs: ClassVar[bool] = False

    dtype: str = fields.choice("float32", *VALUE_NAMES, help="type of the elements on the wire")

    @property
    def _wire(self) -> FloatType:
        return VALUE_DTYPES[VALUE_NAMES.index(self.dtype)]

    def payload_bytes(self, shape: tuple[int, ...], signed: bool = False) -> int:
        """Elements times their size."""
        rows, d = self.sections(shape)
        return rows * d * self._wire.itemsize

    def write(self, x: Tensor, writer: Writer) -> bytes:
        """See `Codec.write`."""
        finite(x, writer, self._wire)
        raw = to_wire(x, self._wire)
        opened, offset = writer.open(self, memoryview(raw).nbytes)
        writer.kernels.put_bytes(opened, offset, raw)
        return writer.close(opened)

    def read(self, reader: Reader, out: Tensor) -> None:
        """See `Codec.read`."""
        at, n = reader.header.payload_offset, count(out)
        check(reader.kernels.check_values(reader.data, at, n, VALUE_NAMES.index(self.dtype)))
        if self._wire is FLOAT32:
            reader.kernels.get_floats(reader.data, at, out)
        else:
            from_wire(reader.data, at, out, self._wire)
