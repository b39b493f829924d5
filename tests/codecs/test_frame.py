"""Every kind of damage has its own error, and is found before memory is allocated."""

import struct
import zlib

import pytest
import torch

import cutlayer
from cutlayer.codecs.kernels import dispatch as kernels
from cutlayer.errors import (
    ChecksumError,
    FrameError,
    HeaderError,
    LimitError,
    NotAFrameError,
    PayloadError,
    TrailingBytesError,
    TruncatedFrameError,
    VersionError,
)

X = torch.randn(4, 33, generator=torch.Generator().manual_seed(0))


def frame_of(spec: str) -> bytearray:
    return bytearray(cutlayer.codec(spec).encode(X))


def sealed(frame: bytearray) -> bytes:
    """The frame with a checksum that fits its bytes: a forgery, not an accident."""
    frame[4:8] = struct.pack("<I", zlib.crc32(frame[8:]))
    return bytes(frame)


def offset_of_payload(frame: bytes) -> int:
    return cutlayer.inspect(frame).header_bytes


@pytest.fixture(params=kernels.available(), autouse=True)
def implementation(request: pytest.FixtureRequest):
    with kernels.using(request.param):
        yield


def test_the_checksum_is_that_of_zlib() -> None:
    frame = frame_of("ms")
    assert struct.unpack_from("<I", frame, 4)[0] == zlib.crc32(frame[8:])


@pytest.mark.parametrize("holder", [bytes, bytearray, memoryview])
def test_any_holder_of_bytes(holder: type) -> None:
    frame = holder(bytes(frame_of("ms")))
    assert cutlayer.decode(frame).shape == X.shape
    assert cutlayer.inspect(frame).shape == X.shape


def test_not_a_frame() -> None:
    for wrong in (b"PK\x03\x04 and so on, a zip file", b"x", "text", 7):
        with pytest.raises(NotAFrameError):
            cutlayer.decode(wrong)  # type: ignore[arg-type]


def test_truncation_at_every_byte() -> None:
    frame = bytes(frame_of("sp"))
    for n in range(len(frame)):
        with pytest.raises(TruncatedFrameError):
            cutlayer.decode(frame[:n])


def test_trailing_bytes() -> None:
    with pytest.raises(TrailingBytesError, match="3 bytes"):
        cutlayer.decode(bytes(frame_of("ms")) + b"abc")


def test_a_flipped_bit_anywhere_is_found() -> None:
    frame = frame_of("qu")
    for bit in range(8 * len(frame)):
        changed = frame.copy()
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FrameError):
            cutlayer.decode(bytes(changed))
    changed = frame.copy()
    changed[-1] ^= 1
    with pytest.raises(ChecksumError, match="send again"):
        cutlayer.decode(bytes(changed))


def test_newer_version() -> None:
    frame = frame_of("ms")
    frame[8] = 2
    with pytest.raises(VersionError, match=r"version 2.*upgrade"):
        cutlayer.decode(sealed(frame))


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        (9, 99, "codec number 99"),
        (10, 4, "a frame of ms cannot hold bool"),
        (10, 10, "dtype 10"),
        (11, 2, "flags 0x2"),
        (12, 33, "33 dimensions"),
        (22, 0, "dimension"),
    ],
)
def test_header_fields(at: int, value: int, words: str) -> None:
    frame = frame_of("ms")
    frame[at] = value
    with pytest.raises(HeaderError, match=words):
        cutlayer.decode(sealed(frame))


def test_nothing_may_follow_the_parameters() -> None:
    frame = frame_of("ms")
    frame[13] += 1
    frame[36:36] = b"x"
    with pytest.raises(HeaderError, match="should follow the parameters"):
        cutlayer.decode(sealed(frame))
    with pytest.raises(HeaderError, match="should follow the parameters"):
        cutlayer.inspect(bytes(frame))


def test_the_sign_flag_is_for_codecs_that_use_it() -> None:
    frame = frame_of("sp")
    frame[11] = 1
    with pytest.raises(HeaderError, match="sign flag"):
        cutlayer.decode(sealed(frame))


def test_varints_must_be_short() -> None:
    frame = frame_of("dense")
    frame[22:23] = b"\x84\x00"
    with pytest.raises(HeaderError, match="shortest"):
        cutlayer.decode(sealed(frame))


def with_shape(spec: str, shape: list[int]) -> bytes:
    """A frame that claims another shape."""

    def varint(n: int) -> bytes:
        return bytes([n & 0x7F | 0x80]) + varint(n >> 7) if n >= 0x80 else bytes([n])

    frame = frame_of(spec)
    frame[22:24] = b"".join(map(varint, shape))
    frame[12] = len(shape)
    return sealed(frame)


def test_absurd_shapes_are_refused_before_allocation() -> None:
    for shape in ([1 << 40], [1 << 20, 1 << 20], [2**62, 2**62], [(1 << 28) + 1]):
        with pytest.raises(LimitError, match="max_elements"):
            cutlayer.decode(with_shape("sp:ratio=0.999999", shape))
    with pytest.raises(HeaderError, match="64 bits"):
        cutlayer.decode(with_shape("sp", [1 << 80]))


def test_the_limit_is_the_callers() -> None:
    frame = bytes(frame_of("ms"))
    with pytest.raises(LimitError, match="131"):
        cutlayer.decode(frame, max_elements=131)
    assert cutlayer.decode(frame, max_elements=132).shape == X.shape


def test_payload_size_must_be_the_formulas() -> None:
    with pytest.raises(PayloadError, match="needs"):
        cutlayer.decode(with_shape("ms", [4, 34]))


@pytest.mark.parametrize("spec", ["ms:ratio=0.9,bits=2", "ms:ratio=0.9,bits=5", "sp:ratio=0.9,store=mask"])
def test_marks_must_be_k(spec: str) -> None:
    frame = frame_of(spec)
    start = offset_of_payload(frame)
    for byte in range(start, start + 8):
        frame[byte] = 0xFF
    with pytest.raises(PayloadError, match="mark"):
        cutlayer.decode(sealed(frame))


@pytest.mark.parametrize(
    "spec", ["dense", "dense:dtype=float16", "sp:ratio=0.9", "sp:values=bfloat16", "ms", "ms:values=float16"]
)
def test_values_must_be_finite(spec: str) -> None:
    frame = frame_of(spec)
    frame[-2:] = b"\xff\x7f"
    frame[-4:-2] = b"\xff\xff" if "16" not in spec else frame[-4:-2]
    with pytest.raises(PayloadError, match="NaN"):
        cutlayer.decode(sealed(frame))


def test_padding_must_be_zero() -> None:
    for spec, last in (
        ("qu:bits=3", -1),
        ("km:bits=3", -1),
        ("ms:ratio=0.99,bits=2", -5),
        ("sp:ratio=0.9", -1 - 4 * 13),
    ):
        frame = frame_of(spec)
        frame[last] |= 0x80
        with pytest.raises(PayloadError, match="unused bits"):
            cutlayer.decode(sealed(frame))


def test_keys_must_increase_and_fit() -> None:
    frame = frame_of("sp:ratio=0.9,store=keys")
    start = offset_of_payload(frame)
    for keys in ([5, 5], [6, 5], [5, 132], [5, 2**32 - 1]):
        forged = frame.copy()
        struct.pack_into("<II", forged, start + 4 * 11, *keys)
        with pytest.raises(PayloadError, match="keys"):
            cutlayer.decode(sealed(forged))


def test_ranges_must_be_in_order() -> None:
    for lo, hi in ((1.0, 0.0), (float("nan"), 1.0), (0.0, float("inf"))):
        frame = frame_of("qu:bits=3,scope=sample")
        struct.pack_into("<ff", frame, offset_of_payload(frame), lo, hi)
        with pytest.raises(PayloadError, match="range"):
            cutlayer.decode(sealed(frame))
    frame = frame_of("km:bits=1")
    struct.pack_into("<ff", frame, offset_of_payload(frame), 2.0, 1.0)
    with pytest.raises(PayloadError, match="table"):
        cutlayer.decode(sealed(frame))


def test_parameters_are_checked() -> None:
    frame = frame_of("ms")
    for at, value in ((8, 0), (8, 17), (9, 2), (10, 3), (11, 2)):
        forged = frame.copy()
        forged[24 + at] = value
        with pytest.raises(HeaderError, match="ms"):
            cutlayer.decode(sealed(forged))
    forged = frame.copy()
    struct.pack_into("<d", forged, 24, float("nan"))
    with pytest.raises(HeaderError, match="ratio"):
        cutlayer.decode(sealed(forged))


def test_store_must_be_decided() -> None:
    frame = frame_of("sp:ratio=0.9")
    frame[24 + 8] = 0
    with pytest.raises(HeaderError, match="auto"):
        cutlayer.decode(sealed(frame))


def test_a_refused_frame_leaves_out_alone() -> None:
    out = torch.full((4, 33), 7.0)
    for spec in ("ms", "sp", "qu:bits=3,scope=sample", "km:bits=3,scope=sample", "dense"):
        frame = frame_of(spec)
        frame[-1] |= 0x80 if spec != "dense" else 0
        frame[-4:] = b"\xff\xff\xff\xff"
        with pytest.raises(FrameError):
            cutlayer.decode(sealed(frame), out=out)
        assert (out == 7).all()


def test_inspect_reads_the_header_only() -> None:
    frame = frame_of("rt:ratio=0.9,alpha=0.25")
    frame[-1] ^= 0xFF
    info = cutlayer.inspect(bytes(frame))
    assert info.codec == "rt:ratio=0.9,alpha=0.25,store=mask"
    assert info.shape == (4, 33)
    assert info.dtype == torch.float32
    assert info.header_bytes + info.payload_bytes == len(frame)
    assert info.bits_per_element == pytest.approx(8 * len(frame) / 132)
