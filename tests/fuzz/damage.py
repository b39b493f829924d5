"""Frames that no honest encoder made: damaged at random, or forged with a checksum that fits."""

import random
import struct
import zlib
from collections.abc import Iterator

import torch

import cutlayer
from cutlayer.codecs import frame as layout

SPECS = [
    "dense",
    "dense:dtype=float16",
    "qu:bits=3",
    "qu:bits=11,scope=sample",
    "sp:ratio=0.9",
    "sp:ratio=0.98,store=keys",
    "sp:ratio=0.7,values=float16,scope=sample",
    "ms:ratio=0.9,bits=1",
    "ms:ratio=0.99,bits=2",
    "ms:ratio=0.9,bits=3,values=bfloat16,scope=sample",
    "ms:ratio=0.5,bits=9",
    "rt:ratio=0.9",
    "rk:ratio=0.95,store=keys",
    "km:bits=3",
    "km:bits=5,scope=sample",
    "ems:levels=3",
    "ems:levels=20,ratio=0.9,scope=sample",
    "ems:levels=3,rounding=floor,values=float32",
    "ems:levels=100,values=bfloat16",
    "ems:error=0.05,transform=dct",
    "ems:error=0.05,layout=tokens,rotation=pca,scales=channel",
    "ems:step=0.7,rounding=stochastic",
    "ems:levels=3,rounding=stochastic,scope=sample",
    "splitfc:drop=0.5,bpe=4.0",
    "fedlite:size=3,clusters=5,groups=2",
    "slacc:low=2,high=4",
    "c3sl:merge=2",
    "uq:step=0.5",
]
HOSTILE = [0, 1, 2, 0x7F, 0x80, 0xFF, 0x100, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 63) - 1]


def corpus(only: str | None = None, *, large: bool = True) -> list[bytes]:
    """Honest frames of all codecs, or only of one, and several shapes.

    The large ones have enough lanes for the SIMD decoder of `ems`, and more than one span of the others.
    """
    frames = []
    if only:
        SPECS[:] = [spec for spec in SPECS if spec.partition(":")[0] == only]
    small: tuple[tuple[int, ...], ...] = ((), (1,), (7,), (64,), (3, 50), (2, 5, 4, 4), (300,))
    for shape in (*small, (2, 1500)) if large else small:
        generator = torch.Generator().manual_seed(len(frames))
        x = torch.randn(shape, generator=generator)
        for spec in SPECS:
            frames += [cutlayer.codec(spec).encode(x), cutlayer.codec(spec).encode(x.abs())]
    for shape in ((6, 4, 9, 7), (2, 8, 16, 16), (5, 14, 6)) + (
        ((15, 1, 17, 241), (11, 2, 64, 40)) if large else ()
    ):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(len(frames))).cumsum(-1) / 4
        for spec in (spec for spec in SPECS if spec.startswith("ems")):
            frames += [cutlayer.codec(spec).encode(x), cutlayer.codec(spec).encode(x.relu())]
    return frames


def sealed(frame: bytearray) -> bytes:
    """The frame with the right checksum, so that the damage reaches the codecs."""
    if len(frame) >= layout.CHECKED_FROM:
        frame[4:8] = struct.pack("<I", zlib.crc32(frame[8:]))
    return bytes(frame)


def damaged(frames: list[bytes], seed: int) -> Iterator[bytes]:
    """An endless supply of wrong frames; now and then one is right by accident."""
    rng = random.Random(seed)
    kinds = [_flip, _overwrite, _cut, _extend, _splice, _header, _payload, _forge]
    while True:
        frame = bytearray(rng.choice(frames))
        for _ in range(rng.choice((1, 1, 2, 4))):
            rng.choice(kinds)(rng, frame, frames)
        if rng.random() < 0.5 and len(frame) > 24:
            _fit_length(frame)
        yield sealed(frame) if rng.random() < 0.85 else bytes(frame)


def _flip(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    for _ in range(rng.choice((1, 2, 8))):
        if frame:
            frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)


def _overwrite(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    if frame:
        at = rng.randrange(len(frame))
        size = rng.choice((1, 4, 8))
        frame[at : at + size] = (rng.choice(HOSTILE) % (1 << 8 * size)).to_bytes(size, "little")


def _cut(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    del frame[rng.randrange(len(frame) + 1) :]


def _extend(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    frame += rng.randbytes(rng.choice((1, 3, 100)))


def _splice(rng: random.Random, frame: bytearray, frames: list[bytes]) -> None:
    other = rng.choice(frames)
    frame[rng.randrange(len(frame) + 1) :] = other[rng.randrange(len(other) + 1) :]


def _header(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    """A hostile number where the header has one."""
    if len(frame) < 26:
        return
    at, size = rng.choice(((9, 1), (10, 1), (11, 1), (12, 1), (13, 1), (14, 8), (22, 1), (23, 1), (24, 8)))
    frame[at : at + size] = (rng.choice(HOSTILE) % (1 << 8 * size)).to_bytes(size, "little")
    if rng.random() < 0.2:
        frame[24:32] = struct.pack(
            "<d", rng.choice((0.0, 0.5, 0.999999999, 1.0, -1.0, float("nan"), float("inf")))
        )


def _payload(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    """The payload replaced by noise, ones or zeros."""
    start = min(len(frame), 40)
    size = len(frame) - start
    frame[start:] = rng.choice((rng.randbytes(size), bytes(size), b"\xff" * size))


def _forge(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    """A frame whose header is in order, with noise of the right size for a payload."""
    codec = cutlayer.codec(rng.choice(SPECS))
    if "store=auto" in repr(codec).replace("'", ""):
        codec = cutlayer.codec(f"sp:ratio=0.9,store={rng.choice(('mask', 'keys'))}")
    shape = tuple(rng.choice((1, 2, 3, 8, 17, 65)) for _ in range(rng.randrange(4)))
    signed = rng.random() < 0.5
    size = codec.payload_bytes(shape, signed)
    side = struct.pack("<ff", rng.uniform(-2, 0), rng.uniform(-1, 3)) if "qu" in codec.name else b""
    block = codec.block() + (b"" if getattr(codec, "scope", "") == "sample" else side)
    header = layout.build(codec.id, rng.choice(layout.DTYPES), signed, shape, block, size)
    body = rng.choice((rng.randbytes(size), bytes(size), b"\xff" * size, b"\x55" * size))
    frame[:] = header + body


def _fit_length(frame: bytearray) -> None:
    """Let the header state the payload size that makes the frame whole, if the shape can be read."""
    offset = 22
    for _ in range(min(frame[12], 8)):
        while offset < len(frame) and frame[offset] & 0x80:
            offset += 1
        offset += 1
    rest = len(frame) - offset - frame[13]
    if rest >= 0:
        struct.pack_into("<Q", frame, 14, rest)
