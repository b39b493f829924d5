"""What every codec is: its parameters, and a way from tensors to payloads and back."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import Buffer

from cutlayer.codecs import fields, frame
from cutlayer.codecs.kernels.dispatch import Kernels, kernels_for
from cutlayer.codecs.tensors import Source, source
from cutlayer.errors import CutlayerError, ParameterError, PayloadError, RangeError

NAMED = 255  # the codec id of frames that carry their codec's name


@dataclass(slots=True)
class Writer:
    """One frame in the making: what a codec needs beside the elements."""

    source: Source
    kernels: Kernels
    seed: int

    def open(
        self, codec: "Codec", payload: int, *, signed: bool = False, side: bytes = b""
    ) -> tuple[Any, int]:
        """A frame with room for so many bytes, and where they go. `side` follows the parameters."""
        block = codec.block() + side
        header = frame.build(codec.id, self.source.given.dtype, signed, self.source.shape, block, payload)
        return self.kernels.allocate(header, payload), len(header)

    def close(self, opened: Any) -> bytes:
        """Seal the frame with its checksum."""
        return self.kernels.seal(opened, frame.CHECKED_FROM)


@dataclass(slots=True)
class Reader:
    """One frame being decoded, its header checked."""

    data: memoryview
    header: frame.Header
    kernels: Kernels
    side: bytes

    @property
    def payload(self) -> memoryview:
        """The payload's bytes."""
        return self.data[self.header.payload_offset :]


@dataclass(frozen=True)
class Codec(ABC):
    """A way to carry a tensor in few bytes.

    Subclass it as a frozen dataclass whose fields come from `cutlayer.codecs.fields`, and give it a `name`,
    `payload_bytes`, `pack` and `unpack`; docs/codec-of-your-own.md shows one in twenty lines.
    """

    name: ClassVar[str] = ""
    id: ClassVar[int] = NAMED
    advice: ClassVar[str] = ""
    fixed_size: ClassVar[bool] = True  # whether the shape alone decides the payload's size
    signs: ClassVar[bool] = True  # whether the payload depends on there being negative values

    def __post_init__(self) -> None:
        fields.validate(self)

    def __str__(self) -> str:
        return fields.to_spec(self)

    def encode(self, x: Any, *, seed: int | None = None, generator: torch.Generator | None = None) -> bytes:
        """A tensor or array as a frame.

        Codecs that make random choices take them from `seed`, or from a seed that is drawn from
        `generator`, or from their own parameter `seed`. The same seed gives the same bytes, so give each
        batch its own.
        """
        taken = source(x)
        return self.write(
            taken.flat.view(self.sections(taken.shape)),
            Writer(taken, kernels_for(taken.flat.device), self._draw(seed, generator)),
        )

    def decode(self, data: Buffer, *, out: Any = None) -> Tensor:
        """The tensor in a frame, whichever codec made it. See `cutlayer.decode`."""
        from cutlayer.codecs.decode import decode

        return decode(data, out=out)

    def deterministic(self) -> "Codec":
        """The codec for evaluation: this one, without its random choices."""
        return self

    def bits_per_element(self, shape: tuple[int, ...], signed: bool = False) -> float:
        """The payload's bits an element, header excluded. `signed`: for a tensor with negative values."""
        return 8 * self.payload_bytes(tuple(shape), signed) / math.prod(shape)

    @abstractmethod
    def payload_bytes(self, shape: tuple[int, ...], signed: bool = False) -> int:
        """The exact size of the payload for a tensor of that shape; the most, without `fixed_size`."""

    def side_bytes(self) -> int:
        """How many bytes follow the parameters in the header. For built-in codecs."""
        return 0

    def pack(self, x: Tensor, seed: int) -> bytes:
        """The payload for elements of shape (sections, elements). For codecs that are not built in.

        Random choices should depend on `seed` alone.
        """
        raise ParameterError(f"the codec {self.name} does not implement pack()")

    def unpack(self, payload: memoryview, shape: tuple[int, int], signed: bool) -> Tensor:
        """The elements, as float32 of that shape, of a payload. For codecs that are not built in."""
        raise ParameterError(f"the codec {self.name} does not implement unpack()")

    def sections(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """How many sections are coded alone, and how many elements each has."""
        count = math.prod(shape)
        # A tensor of fewer than two dimensions has no batch, so it is one sample.
        rows = shape[0] if getattr(self, "scope", "tensor") == "sample" and len(shape) > 1 else 1
        return rows, count // rows

    def block(self) -> bytes:
        """The parameter block of this codec's frames."""
        own = fields.to_wire(self)
        if self.id != NAMED:
            return own
        name = self.name.encode("ascii")
        return bytes([len(name)]) + name + own

    def write(self, x: Tensor, writer: Writer) -> bytes:
        """Elements of shape (sections, elements) as a frame."""
        finite(x, writer)
        payload = self.pack(x, writer.seed)
        signed = bool((x < 0).any())
        expected = self.payload_bytes(writer.source.shape, signed)
        if len(payload) != expected:
            raise PayloadError(f"{self}: pack() gave {len(payload)} bytes, payload_bytes() {expected}")
        block = self.block()
        header = frame.build(
            self.id, writer.source.given.dtype, signed, writer.source.shape, block, len(payload)
        )
        whole = writer.kernels.allocate(header + payload, 0)
        return writer.close(whole)

    def read(self, reader: Reader, out: Tensor) -> None:
        """Decode into float32 of shape (sections, elements). Writes nothing if the payload is wrong."""
        try:
            decoded = self.unpack(reader.payload, (out.shape[0], out.shape[1]), reader.header.signed)
        except CutlayerError:
            raise
        except Exception as error:  # a stranger's codec met a stranger's bytes: anything may happen
            raise PayloadError(f"{self}: the payload cannot be decoded: {error}") from error
        if decoded.shape != out.shape or not torch.isfinite(decoded).all():
            raise PayloadError(f"{self}: the payload does not decode to finite values of the shape")
        out.copy_(decoded)

    def _draw(self, seed: int | None, generator: torch.Generator | None) -> int:
        if seed is not None and generator is not None:
            raise ParameterError("give a seed or a generator, not both")
        if generator is not None:
            return int(torch.randint(0, 1 << 62, (), generator=generator, device=generator.device))
        if seed is None:
            return int(getattr(self, "seed", 0))
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 64:
            raise ParameterError(f"seed={seed!r} is not allowed; expected an integer from 0 to 2^64 - 1")
        return seed


@lru_cache(maxsize=4096)
def kept(ratio: float, d: int) -> int:
    """How many of d elements a sparsification ratio leaves: floor((1 - ratio) d), at least one.

    The ratio counts as the decimal number it prints as, so 0.9 of 100 leaves 10 although the nearest
    binary number to 0.9 would leave 9.
    """
    return max(1, math.floor((1 - Fraction(repr(ratio))) * d))


def finite(x: Tensor, writer: Writer, wire: torch.dtype = torch.float32) -> None:
    """Refuse a tensor that holds NaN or infinity, or what would be infinite on the wire."""
    accept(max(r.largest for r in writer.kernels.ranges(x.view(1, -1))), writer, wire)


def accept(largest: float, writer: Writer, wire: torch.dtype = torch.float32, scale: float = 1.0) -> None:
    """Raise unless the largest magnitude that a kernel met is finite, and stays so on its way.

    It travels as `wire`, multiplied by `scale`, and ends in the dtype of the tensor.
    """
    if not math.isfinite(largest):
        raise writer.source.refuse()
    if wire is torch.float32 and scale == 1:
        return  # nothing on the way is narrower than where it started
    given = writer.source.given.dtype
    if largest * scale < min(torch.finfo(wire).max, torch.finfo(given).max) / 2:
        return  # far from the limit, which is usual, and faster to see than to try
    arrived = (torch.tensor(largest) * scale).to(wire).to(given)
    if not torch.isfinite(arrived):
        raise RangeError(
            f"a value as large as {largest:g} does not survive as {_word(wire)} in a {_word(given)} tensor; "
            "use a wider type on the wire (values=float32, dtype=float32) or scale the tensor"
        )


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
