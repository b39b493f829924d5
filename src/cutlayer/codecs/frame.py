"""Frame headers: built and parsed (FORMAT.md, "Layout"). Payloads belong to the codecs."""

import math
import struct
from dataclasses import dataclass

from typing_extensions import Buffer

from cutlayer.codecs.kernels.float_types import DTYPES, INTEGERS, FloatType, IntegerType
from cutlayer.errors import (
    HeaderError,
    LimitError,
    NotAFrameError,
    TrailingBytesError,
    TruncatedFrameError,
    VersionError,
)

MAGIC = b"\x89CUT"
VERSION = 1
CHECKED_FROM = 8  # the checksum stands in the four bytes before this offset, and covers all bytes from it on
MAX_RANK = 32
MAX_ELEMENTS = (1 << 32) - 1
DEFAULT_LIMIT = 1 << 28
SIGNED = 1

_NUMBERED: tuple[FloatType | IntegerType, ...] = DTYPES + INTEGERS
_FIXED = struct.Struct("<4sIBBBBBBQ")


@dataclass(slots=True)
class Header:
    """The fields of a frame's header."""

    codec_id: int
    dtype: FloatType | IntegerType
    signed: bool
    shape: tuple[int, ...]
    block: bytes
    payload_offset: int
    payload_bytes: int

    @property
    def elements(self) -> int:
        """How many elements the tensor has."""
        return math.prod(self.shape)


def build(
    codec_id: int,
    dtype: FloatType | IntegerType,
    signed: bool,
    shape: tuple[int, ...],
    block: bytes,
    payload: int,
) -> bytes:
    """Build a header for a payload of so many bytes. The checksum is 0 until the frame is sealed."""
    fixed = _FIXED.pack(
        MAGIC,
        0,
        VERSION,
        codec_id,
        _NUMBERED.index(dtype),
        SIGNED if signed else 0,
        len(shape),
        len(block),
        payload,
    )
    return fixed + b"".join(map(varint, shape)) + block


def view(frame: Buffer) -> memoryview:
    """The bytes of a frame, from any object with a contiguous buffer."""
    try:
        data = memoryview(frame)
    except TypeError:
        raise NotAFrameError(f"a frame is bytes, not {type(frame).__name__}") from None
    if not data.c_contiguous:
        raise NotAFrameError("a frame must be contiguous bytes; call bytes() on it first")
    return data.cast("B") if data.nbytes else data.toreadonly()


def parse(data: memoryview, max_elements: int = DEFAULT_LIMIT) -> Header:
    """Read and check the header. The caller checks the checksum and the payload."""
    if len(data) < len(MAGIC) or data[: len(MAGIC)] != MAGIC:
        if len(data) < len(MAGIC) and MAGIC.startswith(bytes(data)):
            raise TruncatedFrameError(f"{len(data)} bytes are not even the start of a frame")
        raise NotAFrameError(
            f"these bytes start with {bytes(data[:4]).hex(' ')}, a frame with {MAGIC.hex(' ')}"
        )
    if len(data) > CHECKED_FROM and data[CHECKED_FROM] != VERSION:
        raise VersionError(
            f"the frame is of format version {data[CHECKED_FROM]}, this library reads version "
            f"{VERSION}; upgrade cutlayer on the receiving side"
        )
    if len(data) < _FIXED.size:
        raise TruncatedFrameError(f"the header takes {_FIXED.size} bytes, only {len(data)} are there")
    _, _, _, codec_id, dtype, flags, rank, block_size, payload = _FIXED.unpack_from(data)
    if dtype >= len(_NUMBERED):
        raise HeaderError(f"dtype {dtype} is unknown")
    if flags & ~SIGNED:
        raise HeaderError(f"flags {flags:#x} are set that version {VERSION} does not define")
    if rank > MAX_RANK:
        raise HeaderError(f"a tensor of {rank} dimensions; at most {MAX_RANK} are allowed")
    shape, offset = _shape(data, rank, min(max_elements, MAX_ELEMENTS))
    start = offset + block_size
    if len(data) < start + payload:
        raise TruncatedFrameError(f"the frame takes {start + payload} bytes, only {len(data)} are there")
    if len(data) > start + payload:
        raise TrailingBytesError(f"{len(data) - start - payload} bytes follow the end of the frame")
    return Header(
        codec_id,
        _NUMBERED[dtype],
        bool(flags & SIGNED),
        shape,
        bytes(data[offset:start]),
        start,
        payload,
    )


def stated_checksum(data: memoryview) -> int:
    """The checksum in the header."""
    return int.from_bytes(data[CHECKED_FROM - 4 : CHECKED_FROM], "little")


def varint(value: int) -> bytes:
    """An unsigned number in LEB128."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: memoryview, offset: int) -> tuple[int, int]:
    """A number in LEB128 in its shortest form, and the offset behind it."""
    value = shift = 0
    while True:
        if offset >= len(data):
            raise TruncatedFrameError("the bytes end within a number")
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
        if shift > 63:
            raise HeaderError("a number does not fit 64 bits")
    if byte == 0 and shift > 7:
        raise HeaderError("a number is not in its shortest form")
    return value, offset


def _shape(data: memoryview, rank: int, limit: int) -> tuple[tuple[int, ...], int]:
    offset, total, shape = _FIXED.size, 1, []
    for _ in range(rank):
        size = shift = 0
        while True:
            if offset >= len(data):
                raise TruncatedFrameError("the header ends within the shape")
            byte = data[offset]
            offset += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
            if shift > 63:
                raise HeaderError("a dimension of the shape does not fit 64 bits")
        if size == 0 or (byte == 0 and shift > 7):
            raise HeaderError("a dimension of the shape is 0 or not in its shortest form")
        shape.append(size)
        total *= size
    if total > limit:
        raise LimitError(
            f"the frame claims {total:,} elements (shape {tuple(shape)}), the limit is {limit:,}; "
            "if you trust the sender, decode with a larger max_elements"
        )
    return tuple(shape), offset
