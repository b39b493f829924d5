"""The plain-Python decoder of docs/explanation/wire-format.md reads what cutlayer writes, bit for bit."""

import re
import runpy
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import cutlayer

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "wire-format.md"
Decoder = Callable[[bytes], tuple[list[int], tuple[float, ...]]]


@pytest.fixture(scope="module")
def decode_ms(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    found = re.search(
        r"<!-- the decoder.*?-->\n```python\n(.*?)\n\n\nshape, ", PAGE.read_text("utf-8"), re.DOTALL
    )
    assert found, "the page has no decoder"
    assert "torch" not in found[1]
    assert "cutlayer" not in found[1]
    program = tmp_path_factory.mktemp("page") / "decoder.py"
    program.write_text(found[1], "utf-8")
    decoder: Decoder = runpy.run_path(str(program))["decode_ms"]
    return decoder


def bits(elements: tuple[float, ...]) -> bytes:
    return struct.pack(f"<{len(elements)}f", *elements)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 130, 3)])
@pytest.mark.parametrize(
    "spec",
    [
        *(f"ms:ratio=0.9,bits={b},rounding=nearest" for b in range(1, 17)),
        "ms:ratio=0.75,bits=2",
        "ms:ratio=0,bits=2",
        "ms:ratio=0.75,bits=3,scope=sample",
        "ms:ratio=0.75,bits=2,values=float16",
        "ms:ratio=0.75,bits=5,values=bfloat16,scope=sample",
    ],
)
def test_agrees_with_cutlayer(decode_ms: Decoder, spec: str, shape: tuple[int, ...], signed: bool) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))
    x = x if signed else x.abs()
    frame = cutlayer.codec(spec).encode(x)
    decoded_shape, elements = decode_ms(frame)
    assert decoded_shape == list(shape)
    assert bits(elements) == bits(tuple(cutlayer.decode(frame).flatten().tolist()))


@pytest.mark.parametrize("x", [torch.zeros(9), -torch.ones(9), torch.tensor([0.0, -0.0, 1e-45, -1e-45])])
def test_agrees_at_the_edges(decode_ms: Decoder, x: torch.Tensor) -> None:
    frame = cutlayer.codec("ms:ratio=0.5,bits=2").encode(x)
    assert bits(decode_ms(frame)[1]) == bits(tuple(cutlayer.decode(frame).tolist()))


def test_refuses_what_is_not_an_ms_frame_and_what_was_changed(decode_ms: Decoder) -> None:
    with pytest.raises(ValueError, match="not an ms frame"):
        decode_ms(cutlayer.codec("sp").encode(torch.ones(4)))
    frame = bytearray(cutlayer.codec("ms").encode(torch.ones(4)))
    frame[-1] ^= 1
    with pytest.raises(ValueError, match="checksum"):
        decode_ms(bytes(frame))
