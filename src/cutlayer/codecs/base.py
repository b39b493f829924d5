"""The base class of codecs, and the context objects with which they write and read a frame."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from typing_extensions import Buffer

from cutlayer.codecs import fields, frame
from cutlayer.codecs.kernels.dispatch import kernels_for
from cutlayer.codecs.kernels.float_types import FLOAT32, FloatType, rounded
from cutlayer.codecs.kernels.interface import Kernels
from cutlayer.codecs.tensors import Source, Tensor, host, in_torch, source
from cutlayer.errors import CutlayerError, ParameterError, PayloadError, RangeError
from cutlayer.imports import need

NAMED = 255  # the codec id of third-party codecs, whose frames carry the codec's name


@dataclass(slots=True)
class Writer:
    """The context of encoding one frame: the input tensor, the kernels and the seed."""

    source: Source
    kernels: Kernels
    seed: int

    def open(
        self, codec: "Codec", payload: int, *, signed: bool = False, side: bytes = b""
    ) -> tuple[Any, int]:
        """Allocate a frame for a payload of so many bytes. Returns it and the payload's offset.

        `side` are bytes that follow the parameters in the header.
        """
        block = codec.block() + side
        header = frame.build(codec.id, self.source.dtype, signed, self.source.shape, block, payload)
        return self.kernels.allocate(header, payload), len(header)

    def close(self, opened: Any) -> bytes:
        """Write the checksum, and give the finished frame."""
        return self.kernels.seal(opened, frame.CHECKED_FROM)


@dataclass(slots=True)
class Reader:
    """The context of decoding one frame, whose header was checked."""

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
    """A codec: encodes tensors into frames and decodes them.

    Subclass it as a frozen dataclass whose fields come from `cutlayer.codecs.fields`, and give it a `name`,
    `payload_bytes`, `pack` and `unpack`; docs/tutorials/codec-of-your-own.md shows one in twenty lines.
    """

    name: ClassVar[str] = ""
    id: ClassVar[int] = NAMED
    advice: ClassVar[str] = ""
    fixed_size: ClassVar[bool] = True  # whether the shape alone decides the payload's size
    signs: ClassVar[bool] = True  # whether the payload differs for tensors with negative values
    arrays: ClassVar[str] = "torch"  # what `pack` takes and `unpack` gives: tensors of "torch", or "numpy"

    def __post_init__(self) -> None:
        fields.validate(self)

    def __str__(self) -> str:
        return fields.to_spec(self)

    def encode(self, x: Any, *, seed: int | None = None, generator: Any = None) -> bytes:
        """Encode a tensor or array as a frame: of PyTorch, of NumPy, or of whatever speaks DLPack.

        Codecs that make random choices use `seed`, or a seed drawn from a torch.Generator, or their own
        parameter `seed`. The same seed gives the same bytes, so give each batch its own.
        """
        taken = source(x)
        kernels = kernels_for(taken.device)
        taken.flat = kernels.own(taken.flat)
        return self.write(
            taken.flat.reshape(self.sections(taken.shape)),
            Writer(taken, kernels, self._draw(seed, generator)),
        )

    def decode(self, data: Buffer, *, out: Any = None) -> Any:
        """Decode a frame of any codec. See `cutlayer.decode`."""
        from cutlayer.codecs.decode import decode

        return decode(data, out=out)

    def deterministic(self) -> "Codec":
        """The codec for evaluation: this one, without its random choices."""
        return self

    def bits_per_element(self, shape: tuple[int, ...], signed: bool = False) -> float:
        """Bits an element of the payload, header excluded. `signed`: for a tensor with negative values."""
        return 8 * self.payload_bytes(tuple(shape), signed) / math.prod(shape)

    @abstractmethod
    def payload_bytes(self, shape: tuple[int, ...], signed: bool = False) -> int:
        """The exact size of the payload for a tensor of that shape; an upper limit if not `fixed_size`."""

    def side_bytes(self) -> int:
        """How many bytes follow the parameters in the header. Only built-in codecs have any."""
        return 0

    def pack(self, x: Tensor, seed: int) -> bytes:
        """Encode elements of shape (sections, elements) as a payload. Third-party codecs implement this.

        `x` is of the kind that `arrays` names. Random choices should depend on `seed` alone.
        """
        raise ParameterError(f"the codec {self.name} does not implement pack()")

    def unpack(self, payload: memoryview, shape: tuple[int, int], signed: bool) -> Tensor:
        """Decode a payload to float32 of that shape and of the kind that `arrays` names.

        Third-party codecs implement this.
        """
        raise ParameterError(f"the codec {self.name} does not implement unpack()")

    def sections(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """The number of sections, each of which is coded independently, and the elements of each."""
        count = math.prod(shape)
        # A tensor of fewer than two dimensions has no batch, so it is one sample.
        rows = shape[0] if getattr(self, "scope", "tensor") == "sample" and len(shape) > 1 else 1
        return rows, count // rows

    def block(self) -> bytes:
        """The parameter block in the header of this codec's frames."""
        own = fields.to_wire(self)
        if self.id != NAMED:
            return own
        name = self.name.encode("ascii")
        return bytes([len(name)]) + name + own

    def write(self, x: Tensor, writer: Writer) -> bytes:
        """Encode elements of shape (sections, elements) as a frame. Built-in codecs override this."""
        finite(x, writer)
        payload = self.pack(host(x) if self.arrays == "numpy" else in_torch(x), writer.seed)
        signed = bool((x < 0).any())
        expected = self.payload_bytes(writer.source.shape, signed)
        if len(payload) != expected:
            raise PayloadError(f"{self}: pack() gave {len(payload)} bytes, payload_bytes() {expected}")
        block = self.block()
        header = frame.build(self.id, writer.source.dtype, signed, writer.source.shape, block, len(payload))
        whole = writer.kernels.allocate(header + payload, 0)
        return writer.close(whole)

    def read(self, reader: Reader, out: Tensor) -> None:
        """Decode into float32 of shape (sections, elements). Writes nothing if the payload is malformed."""
        try:
            decoded = self.unpack(reader.payload, (out.shape[0], out.shape[1]), reader.header.signed)
        except CutlayerError:
            raise
        except Exception as error:  # third-party code on untrusted bytes: anything may be raised
            raise PayloadError(f"{self}: the payload cannot be decoded: {error}") from error
        if tuple(decoded.shape) != tuple(out.shape) or not np.isfinite(host(decoded)).all():
            raise PayloadError(f"{self}: the payload does not decode to finite values of the shape")
        out[...] = host(decoded) if isinstance(out, np.ndarray) else in_torch(decoded)

    def _draw(self, seed: int | None, generator: Any) -> int:
        if seed is not None and generator is not None:
            raise ParameterError("give a seed or a generator, not both")
        if generator is not None:
            torch = need("torch", "a generator of seeds")
            return int(torch.randint(0, 1 << 62, (), generator=generator, device=generator.device))
        if seed is None:
            return int(getattr(self, "seed", 0))
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 64:
            raise ParameterError(f"seed={seed!r} is not allowed; expected an integer from 0 to 2^64 - 1")
        return seed


@lru_cache(maxsize=4096)
def kept(ratio: float, d: int) -> int:
    """The number k of kept elements: floor((1 - ratio) d), at least one.

    The ratio is taken as the decimal number that it prints as: 0.9 of 100 keeps 10, although the nearest
    binary number to 0.9 would keep 9.
    """
    return max(1, math.floor((1 - Fraction(repr(ratio))) * d))


def finite(x: Tensor, writer: Writer, wire: FloatType = FLOAT32) -> None:
    """Raise if a tensor holds NaN or infinity, or values that are infinite in the type `wire`."""
    accept(max(r.largest for r in writer.kernels.ranges(x.reshape(1, -1))), writer, wire)


def accept(largest: float, writer: Writer, wire: FloatType = FLOAT32, scale: float = 1.0) -> None:
    """Raise unless the largest magnitude is finite, and stays finite in the frame and in the decoded tensor.

    In the frame it is multiplied by `scale` and has the type `wire`; decoded, it has the dtype of the input.
    """
    if not math.isfinite(largest):
        raise writer.source.refuse()
    if wire is FLOAT32 and scale == 1:
        return  # no conversion narrows it
    given = writer.source.dtype
    if largest * scale < min(wire.largest, given.largest) / 2:
        return  # far below the limit, as usual: no need to try the conversion
    with np.errstate(over="ignore"):
        arrived = rounded(float(np.float32(largest) * np.float32(scale)), wire, given)
    if not math.isfinite(arrived):
        raise RangeError(
            f"a value as large as {largest:g} does not survive as {wire} in a {given} tensor; "
            "use a wider type on the wire (values=float32, dtype=float32) or scale the tensor"
        )
