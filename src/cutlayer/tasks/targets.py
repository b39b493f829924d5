"""How targets travel: integers packed in as few bits as their range needs, floats as frames."""

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.codecs import codec, decode
from cutlayer.errors import DataError, MessageError

# A frame's header has at most 64 bytes for four dimensions, and eight more for each further one.
_HEADER = 128


@dataclass(frozen=True)
class Target:
    """The form of one sample's target, as data have it."""

    kind: Literal["integers", "floats"]
    shape: tuple[int, ...] = ()
    values: int = 0
    """Integers are 0 to values - 1."""
    bits: bool = False
    """Whether integers are yes or no for each of several labels."""
    sequence: bool = False
    """Whether samples are sequences of tokens, and targets have one for each of these."""

    def describe(self) -> str:
        """The form in words."""
        many = f" of shape {list(self.shape)}" if self.shape else ""
        if self.kind == "floats":
            return f"floats{many}"
        return f"bits{many}" if self.bits else f"integers{many} from 0 to {self.values - 1}"


class TargetCodec(Protocol):
    """Turns the targets of a batch into bytes, and bytes from another party into targets."""

    def pack(self, targets: Tensor) -> bytes:
        """The targets of a batch as bytes."""

    def unpack(self, data: bytes, count: int) -> Tensor:
        """The targets of `count` samples. Raises MessageError if the bytes cannot be those."""

    def size(self, count: int) -> int:
        """The most bytes that the targets of `count` samples take."""


@dataclass(frozen=True)
class Integers:
    """Integers from 0 to values - 1, in ceil(log2(values)) bits each."""

    values: int
    shape: tuple[int, ...] = ()

    def pack(self, targets: Tensor) -> bytes:
        """See `TargetCodec.pack`."""
        flat = targets.reshape(-1).numpy() if targets.dtype == torch.int64 else _integers(targets)
        if self.shape and len(flat) and not 0 <= int(flat.min()) <= int(flat.max()) < self.values:
            raise DataError(
                f"targets from {int(flat.min())} to {int(flat.max())}, where 0 to {self.values - 1} can be; "
                "correct the data, or say how many classes there are"
            )
        return pack(flat, self.values)

    def unpack(self, data: bytes, count: int) -> Tensor:
        """See `TargetCodec.unpack`."""
        found = torch.from_numpy(unpack(data, count * math.prod(self.shape), self.values))
        return found.view(count, *self.shape) if self.shape else found

    def size(self, count: int) -> int:
        """See `TargetCodec.size`."""
        return (count * math.prod(self.shape) * bits_per_label(self.values) + 7) // 8


@dataclass(frozen=True)
class Floats:
    """Floats as a dense frame of float32."""

    shape: tuple[int, ...] = ()

    def pack(self, targets: Tensor) -> bytes:
        """See `TargetCodec.pack`."""
        return codec("dense").encode(targets.to(torch.float32))

    def unpack(self, data: bytes, count: int) -> Tensor:
        """See `TargetCodec.unpack`."""
        found: Tensor = decode(data, max_elements=count * math.prod(self.shape))
        if tuple(found.shape) != (count, *self.shape) or found.dtype != torch.float32:
            raise MessageError(
                f"targets of shape {list(found.shape)} of {found.dtype}; expected {[count, *self.shape]} of "
                "torch.float32"
            )
        if not bool(torch.isfinite(found).all()):
            raise MessageError("targets are not finite")
        return found

    def size(self, count: int) -> int:
        """See `TargetCodec.size`."""
        return 4 * count * math.prod(self.shape) + _HEADER


def bits_per_label(classes: int) -> int:
    """ceil(log2(classes)), at least 1."""
    return max(1, (classes - 1).bit_length())


def pack(labels: npt.NDArray[np.int64], classes: int) -> bytes:
    """Labels 0..classes-1 as bytes, the lowest bit of the first label first."""
    bits = bits_per_label(classes)
    spread = (labels[:, None] >> np.arange(bits)) & 1
    return np.packbits(spread.astype(np.uint8).reshape(-1), bitorder="little").tobytes()


def unpack(packed: bytes, count: int, classes: int) -> npt.NDArray[np.int64]:
    """The labels in bytes from another party, checked: neither count nor values are believed."""
    bits = bits_per_label(classes)
    if len(packed) != (count * bits + 7) // 8:
        raise MessageError(
            f"{count} labels of {classes} classes take {(count * bits + 7) // 8} bytes, not {len(packed)}"
        )
    spread = np.unpackbits(np.frombuffer(packed, np.uint8), count=count * bits, bitorder="little")
    labels = spread.reshape(count, bits).astype(np.int64) @ (1 << np.arange(bits, dtype=np.int64))
    if count and int(labels.max()) >= classes:
        raise MessageError(f"a label is {int(labels.max())}; there are classes 0 to {classes - 1}")
    return labels


def _integers(targets: Tensor) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = targets.reshape(-1).to(torch.int64).numpy()
    return found
