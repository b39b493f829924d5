"""The base class of rivals: a codec that sees the whole tensor, and writes and reads a payload of its own."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs.base import Codec, Reader, Writer, finite
from cutlayer.codecs.entropy.layout import ByteReader, malformed
from cutlayer.codecs.kernels.interface import Kernels
from cutlayer.codecs.tensors import Tensor, host, in_torch
from cutlayer.errors import PayloadError, RangeError

_FAR_BELOW = 4096  # values that are so many times below the largest number of their type are safe

Array = NDArray[Any]


class PayloadReader(ByteReader):
    """Reads an untrusted payload from front to back: numbers, arrays and bit streams, each checked."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader.payload)
        self._frame, self._start, self.kernels = reader.data, reader.header.payload_offset, reader.kernels

    def codes(self, n: int, width: int) -> Array:
        """The next bit stream: n codes of `width` bits (int64)."""
        at = self._start + self.at
        self.take((n * width + 7) // 8)
        found: Array | None = self.kernels.ems_unpack_bits(self._frame, at, n, width)
        if found is None:
            raise malformed("the unused bits at the end of a bit stream are not zero")
        return found

    def floats(self, n: int) -> Array:
        """The next n numbers, float32 and finite."""
        found: Array = self.array("<f4", n).astype(np.float32)
        if not np.isfinite(found).all():
            raise malformed("a number is NaN or infinite")
        return found

    def end(self) -> None:
        """Raise unless the payload ends here."""
        if self.at != len(self.data):
            raise malformed("bytes follow its end")


@dataclass(frozen=True)
class Rival(Codec):
    """A codec that compresses the tensor as (samples, channels, positions)."""

    fixed_size: ClassVar[bool] = False
    signs: ClassVar[bool] = False

    @abstractmethod
    def compress(self, x: Array, seed: int, kernels: Kernels) -> bytes:
        """The payload of a tensor (samples, channels, positions), float32."""

    @abstractmethod
    def expand(self, payload: PayloadReader, shape: tuple[int, int, int]) -> Array:
        """The tensor of that shape from its payload. Whatever is wrong with the bytes is a PayloadError."""

    def write(self, x: Tensor, writer: Writer) -> bytes:
        """See `Codec.write`."""
        finite(x, writer)
        shape = as_channels(writer.source.shape)
        payload = self.compress(host(x).reshape(shape), writer.seed, writer.kernels)
        opened, offset = writer.open(self, len(payload))
        writer.kernels.put_bytes(opened, offset, payload)
        frame = writer.close(opened)
        if float(abs(x).max()) > writer.source.dtype.largest / _FAR_BELOW:
            self._check(frame)
        return frame

    def _check(self, frame: bytes) -> None:
        """Raise unless a frame decodes: values near the end of their type may grow beyond it."""
        try:
            self.decode(frame)
        except PayloadError as error:
            raise RangeError(f"{self}: {error}; scale the tensor") from None

    def read(self, reader: Reader, out: Tensor) -> None:
        """See `Codec.read`."""
        payload = PayloadReader(reader)
        found = self.expand(payload, as_channels(reader.header.shape))
        payload.end()
        if not np.isfinite(found).all():
            raise malformed("an element is too large for float32")
        found = np.ascontiguousarray(found.reshape(tuple(out.shape)))
        out[...] = found if isinstance(out, np.ndarray) else in_torch(found)


def as_channels(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """A shape as (samples, channels, positions).

    The second dimension counts channels. A vector is one sample of one channel.
    """
    if len(shape) < 2:
        return 1, 1, int(np.prod(shape, dtype=np.int64))
    return shape[0], shape[1], int(np.prod(shape[2:], dtype=np.int64))


def bit_stream(codes: Array, width: int, kernels: Kernels) -> bytes:
    """Codes (int64) of `width` bits as a bit stream."""
    return bytes(kernels.ems_pack_bits(codes.reshape(-1), width)) if width and codes.size else b""
