"""A codec of the user's own, registered by hand; and frames of codecs that are not here."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

import cutlayer
from cutlayer.codecs import Codec, fields, registry
from cutlayer.errors import HeaderError, SpecError


def make(name: str = "halved") -> type[Codec]:
    @dataclass(frozen=True)
    class Halved(Codec):
        """Sends half of each value, as float32."""

        name: ClassVar[str] = ""
        times: int = fields.integer(1, 1, 9, "how often")

        def payload_bytes(self, shape: tuple[int, ...], signed: bool = False) -> int:
            return 4 * int(np.prod(shape))

        def pack(self, x: torch.Tensor, seed: int) -> bytes:
            return (x / 2**self.times).numpy().tobytes()

        def unpack(self, payload: memoryview, shape: tuple[int, int], signed: bool) -> torch.Tensor:
            return torch.from_numpy(np.frombuffer(payload, np.float32).reshape(shape).copy())

    Halved.name = name
    return Halved


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})


def test_a_registered_codec_decodes_its_own_frames() -> None:
    cls, x = make(), torch.tensor([2.0, -4.0])
    frame = cls().encode(x)
    with pytest.raises(HeaderError, match=r"cutlayer\.register"):
        cutlayer.decode(frame)
    assert cutlayer.register(cls) is cls
    assert cutlayer.decode(frame).tolist() == [1.0, -2.0]
    assert cutlayer.decode(cutlayer.codec("halved:times=2").encode(x)).tolist() == [0.5, -1.0]
    assert cutlayer.inspect(frame).codec == "halved:times=1"
    assert "halved" in cutlayer.codecs.names()


def test_a_cell_that_runs_again_replaces_the_codec() -> None:
    cutlayer.register(make())
    again = cutlayer.register(make())
    assert type(cutlayer.codec("halved")) is again


def test_wrong_classes_and_names_that_are_taken_are_refused() -> None:
    @dataclass(frozen=True)
    class Other(make()):  # type: ignore[misc]
        name: ClassVar[str] = "halved"

    cutlayer.register(make())
    for wrong in (make("ems"), make("Capital"), make(""), make("a b"), Other, int, make()()):
        with pytest.raises(SpecError):
            cutlayer.register(wrong)  # type: ignore[type-var]


def test_inspect_shows_the_header_of_unknown_codecs() -> None:
    frame = make("halved")().encode(torch.zeros(3, 5))
    info = cutlayer.inspect(frame)
    assert (info.codec, info.known, info.shape) == ("halved", False, (3, 5))
    assert info.header_bytes + info.payload_bytes == len(frame)
    future = bytearray(cutlayer.codec("dense").encode(torch.zeros(3, 5)))
    future[9] = 200
    info = cutlayer.inspect(bytes(future))
    assert (info.codec, info.known, info.dtype) == ("codec number 200", False, torch.float32)
    odd = bytearray(frame)
    odd[odd.index(b"halved")] = 0x1B
    assert cutlayer.inspect(bytes(odd)).codec == r"'\x1balved'"
    assert cutlayer.inspect(cutlayer.codec("dense").encode(torch.zeros(2))).known
