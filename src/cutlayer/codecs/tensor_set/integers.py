"""Integers and booleans as frames: lossless, in as few bits an element as their range needs.

They are not under a codec of the user's choice. Codecs are for floating-point tensors, which can lose a
little; a mask or an index cannot.
"""

import struct
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs import frame
from cutlayer.codecs.base import Codec, Reader
from cutlayer.codecs.kernels.dispatch import kernels_for
from cutlayer.codecs.kernels.float_types import INTEGERS, IntegerType
from cutlayer.codecs.tensors import count, host, is_torch
from cutlayer.errors import DtypeError, EmptyTensorError, PayloadError, TooLargeError

_SIDE = struct.Struct("<qB")
_CHUNK = 1 << 14
_BY_NAME = {kind.name: kind for kind in INTEGERS}


@dataclass(frozen=True)
class PackedIntegers(Codec):
    """The codec of integer frames. Beside the parameters stand the smallest value and the bits an element."""

    name: ClassVar[str] = "integers"
    id: ClassVar[int] = 9
    fixed_size: ClassVar[bool] = False
    signs: ClassVar[bool] = False

    def payload_bytes(self, shape: tuple[int, ...], signed: bool = False) -> int:
        """At most eight bytes an element."""
        return 8 * int(np.prod(shape, dtype=np.int64))

    def side_bytes(self) -> int:
        """The smallest value and the width."""
        return _SIDE.size

    def encode(self, x: Any, *, seed: int | None = None, generator: Any = None) -> bytes:
        """See `encode_integers`."""
        return encode_integers(x)


def encode_integers(x: Any) -> bytes:
    """A frame of an integer or boolean tensor or array."""
    if not (is_torch(x) or isinstance(x, np.ndarray)):
        raise DtypeError(f"expected a torch.Tensor or a numpy.ndarray, got {type(x).__name__}")
    kind = _BY_NAME.get(str(x.dtype).removeprefix("torch."))
    if kind is None:
        raise DtypeError(f"cannot encode {x.dtype} without loss; give integers or booleans")
    elements = count(x)
    if elements == 0:
        raise EmptyTensorError(f"a tensor of shape {tuple(x.shape)} has no elements to encode")
    if elements > frame.MAX_ELEMENTS:
        raise TooLargeError(f"{elements:,} elements; a frame takes at most {frame.MAX_ELEMENTS:,}: split it")
    values: NDArray[Any] = host(x).reshape(-1).astype(np.int64)
    low = int(values.min())
    bits = (int(values.max()) - low).bit_length()
    # Modulo 2^64, so that the widest range of int64 fits as well.
    distances = values.view(np.uint64) - np.array(low, np.int64).view(np.uint64)
    payload = pack_bits(distances, bits)
    side = _SIDE.pack(low, bits)
    header = frame.build(PackedIntegers.id, kind, False, tuple(x.shape), side, len(payload))
    kernels = kernels_for("cpu")
    return kernels.seal(kernels.allocate(header + payload, 0), frame.CHECKED_FROM)


def decode_integers(reader: Reader, kind: IntegerType) -> NDArray[Any]:
    """The array of a frame of that type, whose header and checksum were checked."""
    header = reader.header
    low, bits = _SIDE.unpack(reader.side)
    expected = (header.elements * bits + 7) // 8
    if bits > 64 or header.payload_bytes != expected:
        raise PayloadError(
            f"{header.elements} integers of {bits} bits take {expected} bytes, the frame has "
            f"{header.payload_bytes}"
        )
    distances = unpack_bits(reader.payload, header.elements, bits)
    if not kind.lowest <= low <= low + int(distances.max()) <= kind.largest:
        raise PayloadError(f"an integer is out of the range of the tensor's dtype, {kind}")
    values = (distances + np.array(low, np.int64).view(np.uint64)).view(np.int64)
    return values.astype(kind.in_numpy).reshape(header.shape)


def pack_bits(values: NDArray[np.uint64], bits: int) -> bytes:
    """A bit stream of that width (FORMAT.md)."""
    if bits in (8, 16, 32, 64):
        return values.astype(f"<u{bits // 8}").tobytes()
    places = np.arange(bits, dtype=np.uint64)
    # A chunk is a multiple of eight elements, so that each begins on a byte.
    chunks = (values[i : i + _CHUNK] for i in range(0, len(values) if bits else 0, _CHUNK))
    spread = (((chunk[:, None] >> places) & np.uint64(1)).astype(np.uint8) for chunk in chunks)
    return b"".join(np.packbits(each.reshape(-1), bitorder="little").tobytes() for each in spread)


def unpack_bits(data: memoryview, count: int, bits: int) -> NDArray[np.uint64]:
    """The numbers in a bit stream, whose size was checked."""
    raw = np.frombuffer(data, np.uint8)
    if bits in (8, 16, 32, 64):
        return raw.view(f"<u{bits // 8}").astype(np.uint64)
    found = np.zeros(count, np.uint64)
    unused = len(raw) * 8 - count * bits
    if unused and int(raw[-1]) >> (8 - unused):
        raise PayloadError("bits behind the last integer are set")
    places = np.arange(bits, dtype=np.uint64)
    for i in range(0, count if bits else 0, _CHUNK):
        n = min(_CHUNK, count - i)
        part = np.unpackbits(raw[i * bits // 8 :], count=n * bits, bitorder="little").reshape(n, bits)
        found[i : i + n] = (part.astype(np.uint64) << places).sum(1, dtype=np.uint64)
    return found
