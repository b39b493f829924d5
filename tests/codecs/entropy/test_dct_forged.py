"""Forged sections of DCT coefficients: refused with a named error, or decoded to finite values."""

import math
import struct
import zlib

import pytest
import torch

import cutlayer
from cutlayer.codecs.entropy.layout import DCT
from cutlayer.codecs.kernels import dispatch as kernels
from cutlayer.errors import PayloadError


def encode(x: torch.Tensor, how: str) -> bytes:
    return cutlayer.codec(f"ems:{how}").encode(x)


def first_section(frame: bytes) -> int:
    """Where the first section begins, behind its size."""
    start = cutlayer.inspect(frame).header_bytes
    return start + next(i for i, byte in enumerate(frame[start:]) if byte < 0x80) + 1


def forged(frame: bytes, at: int, new: bytes) -> bytes:
    """With other bytes at a place of the first section, and the right checksum."""
    changed = bytearray(frame)
    start = first_section(frame)
    changed[start + at : start + at + len(new)] = new
    changed[4:8] = struct.pack("<I", zlib.crc32(changed[8:]))
    return bytes(changed)


INNER = 1 + 8 + 2 * 6 * 6  # where the coefficients' own section begins


@pytest.mark.parametrize(
    ("at", "new", "match"),
    [
        (1, struct.pack("<ff", 1.0, 0.0), "between 1.0 and 0.0"),
        (1, struct.pack("<ff", -math.inf, 0.0), "between -inf and 0.0"),
        (5, struct.pack("<f", math.nan), "and nan"),
        (9, struct.pack("<h", -32768), "rotation"),
        (INNER, b"\x02", "coding 2"),
        (INNER, b"\x03", "coding 3"),
        (0, b"\x03", "malformed"),  # tokens, which it does not hold
        (0, b"\x04", "coding 4"),
        (0, b"\x01", "malformed"),
    ],
)
def test_forged_sections_are_refused_by_name(plain: torch.Tensor, at: int, new: bytes, match: str) -> None:
    frame = encode(plain, "error=0.05,transform=dct")
    cutlayer.decode(forged(frame, 0, b"\x02"))
    with pytest.raises(PayloadError, match=match):
        cutlayer.decode(forged(frame, at, new))


def test_a_step_that_could_overflow_is_refused(plain: torch.Tensor) -> None:
    frame = encode(plain, "error=0.05,transform=dct,values=float32")
    section = frame[frame.index(struct.pack("<ff", float(plain.min()), float(plain.max()))) - 1 :]
    # Behind coding and levels come two varints and a width, then the step.
    at = INNER + 2
    for _ in range(2):
        while section[at] & 0x80:
            at += 1
        at += 1
    assert 0 < struct.unpack_from("<f", section, at + 1)[0] < 10
    with pytest.raises(PayloadError, match="a step of"):
        cutlayer.decode(forged(frame, at + 1, struct.pack("<f", 2.0**90)))
    assert torch.isfinite(cutlayer.decode(forged(frame, at + 1, struct.pack("<f", 2.0**89)))).all()


def test_a_tensor_without_planes_cannot_be_transformed(plain: torch.Tensor) -> None:
    frame = encode(torch.rand(20, 30), "error=0.05")
    with pytest.raises(PayloadError, match="1 x 30 in 1 channels"):
        cutlayer.decode(forged(frame, 0, bytes([DCT])))
    exact = cutlayer.codec("ems:levels=3,rounding=floor").encode(plain)
    with pytest.raises(PayloadError, match="transformed"):
        cutlayer.decode(forged(exact, 0, bytes([DCT])))


@pytest.mark.parametrize("implementation", kernels.available())
def test_every_byte_of_a_section_counts(plain: torch.Tensor, implementation: str) -> None:
    """Whichever byte is changed, the frame is refused by name or decodes to finite values."""
    x = plain[:1, :2, :8, :9].contiguous()
    frame = encode(x, "error=0.05,transform=dct")
    assert frame[first_section(frame)] == DCT
    refused = 0
    with kernels.using(implementation):
        size = cutlayer.inspect(frame).payload_bytes - 2
        # Where the head is, and here and there in what follows.
        for at in [*range(0, 27, 3), *range(27, size, 3 if implementation == "native" else 40)]:
            try:
                assert torch.isfinite(cutlayer.decode(forged(frame, at, b"\xa5"))).all()
            except PayloadError:
                refused += 1
    assert refused > 1
