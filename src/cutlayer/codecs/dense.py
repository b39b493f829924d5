"""`dense`: no compression, the baseline."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cutlayer.codecs import fields
from cutlayer.codecs.base import Codec, Reader, Writer, finite
from cutlayer.codecs.kernels.dispatch import check
from cutlayer.codecs.tensors import VALUE_DTYPES, VALUE_NAMES, bytes_of, tensor_from


@dataclass(frozen=True)
class Dense(Codec):
    """Send all elements, in float32, float16 or bfloat16."""

    name: ClassVar[str] = "dense"
    id: ClassVar[int] = 1
    advice: ClassVar[str] = "the baseline; dtype=float16 halves the bytes at almost no error"
    signs: ClassVar[bool] = False

    dtype: str = fields.choice("float32", *VALUE_NAMES, help="type of the elements on the wire")

    @property
    def _wire(self) -> torch.dtype:
        return VALUE_DTYPES[VALUE_NAMES.index(self.dtype)]

    def payload_bytes(self, shape: tuple[int, ...], signed: bool = False) -> int:
        """Elements times their size."""
        rows, d = self.sections(shape)
        return rows * d * self._wire.itemsize

    def write(self, x: Tensor, writer: Writer) -> bytes:
        """See `Codec.write`."""
        finite(x, writer, self._wire)
        raw = bytes_of(x.to(self._wire).cpu())
        opened, offset = writer.open(self, len(raw))
        writer.kernels.put_bytes(opened, offset, raw)
        return writer.close(opened)

    def read(self, reader: Reader, out: Tensor) -> None:
        """See `Codec.read`."""
        at, n = reader.header.payload_offset, out.numel()
        check(reader.kernels.check_values(reader.data, at, n, VALUE_NAMES.index(self.dtype)))
        if self._wire is torch.float32 and out.device.type == "cpu":
            bytes_of(out)[:] = reader.payload
        else:
            out.copy_(tensor_from(reader.data, at, n, self._wire).view(out.shape))
