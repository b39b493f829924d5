"""Frames of many clients decoded into one batch."""

from typing import Any

import numpy as np
import pytest
import torch

import cutlayer
from cutlayer.codecs import decode_many
from cutlayer.codecs.kernels import dispatch as kernels
from cutlayer.errors import ChecksumError, HeaderError, LimitError, OutputError, ParameterError, PayloadError


def maps(samples: int, seed: int) -> torch.Tensor:
    x = torch.randn(samples, 3, 9, 8, generator=torch.Generator().manual_seed(seed))
    return (x + x.roll(1, -1)).relu()


def frames(*specs: str) -> list[bytes]:
    return [cutlayer.codec(spec).encode(maps(2 + i, i)) for i, spec in enumerate(specs)]


@pytest.mark.parametrize("implementation", kernels.available())
@pytest.mark.parametrize(
    "specs",
    [
        ("ems", "ems:bpe=2.0", "ems:levels=3,rounding=nearest"),
        ("ems:scope=sample", "ems:transform=dct,bpe=4.0"),
        ("ems", "ms", "ems"),
        ("ms", "sp"),
        ("ems",),
    ],
)
def test_a_batch_is_what_the_frames_decode_to(specs: tuple[str, ...], implementation: str) -> None:
    given = frames(*specs)
    with kernels.using(implementation):
        expected = torch.cat([cutlayer.decode(f) for f in given])
        assert torch.equal(decode_many(given), expected)
        out = torch.empty_like(expected)
        assert decode_many(given, out=out) is out
        assert torch.equal(out, expected)
        found = decode_many(given, like="numpy")
    assert isinstance(found, np.ndarray)
    assert np.array_equal(found, expected.numpy())


def test_other_types_than_float32_are_batches_too() -> None:
    given = [cutlayer.codec("ems").encode(maps(2, i).half()) for i in range(3)]
    expected = torch.cat([cutlayer.decode(f) for f in given])
    assert torch.equal(decode_many(given), expected)
    assert decode_many(given).dtype is torch.float16


def sealed(frame: bytes) -> bytes:
    """A forged frame with the checksum that fits."""
    kernel = kernels.kernels_for("cpu")
    return frame[:4] + kernel.checksum(frame, 8).to_bytes(4, "little") + frame[8:]


def test_nothing_is_written_if_one_frame_is_bad() -> None:
    good = frames("ems", "ems:bpe=2.0", "ems")
    out = torch.full((9, 3, 9, 8), 7.0)
    changed = bytearray(good[2])
    changed[-1] ^= 1
    for bad, error in ((bytes(changed), ChecksumError), (sealed(bytes(changed)), PayloadError)):
        with pytest.raises(error):
            decode_many([good[0], good[1], bad], out=out)
        assert (out == 7).all()


@pytest.mark.parametrize(
    ("given", "how", "error", "match"),
    [
        ([], {}, ParameterError, "at least one"),
        ([(2, 3, 4, 4), (2, 3, 4, 5)], {}, HeaderError, "agree"),
        ([(2, 3), (2, 3, 1)], {}, HeaderError, "agree"),
        ([(2, 3, 4, 4), (2, 3, 4, 4)], {"max_elements": 100}, LimitError, "together"),
        ([(2, 3), (2, 3)], {"out": torch.empty(3, 3)}, OutputError, "shape"),
    ],
)
def test_what_cannot_be_a_batch_is_refused(
    given: list[tuple[int, ...]], how: dict[str, Any], error: type[Exception], match: str
) -> None:
    made = [cutlayer.codec("ems").encode(torch.rand(shape) + 0.1) for shape in given]
    with pytest.raises(error, match=match):
        decode_many(made, **how)
