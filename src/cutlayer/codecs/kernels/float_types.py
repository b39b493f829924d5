"""The types of numbers that frames carry, without PyTorch: floating-point types and integers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from cutlayer.errors import DtypeError
from cutlayer.imports import need


@dataclass(frozen=True)
class FloatType:
    """A floating-point type by the name that PyTorch and NumPy give it."""

    name: str
    itemsize: int
    largest: float
    """The largest finite number."""

    def __str__(self) -> str:
        return self.name

    @property
    def in_numpy(self) -> Any:
        """The NumPy dtype of arrays of this type. NumPy has no bfloat16: float32 holds its values."""
        return np.dtype("float32" if self.name == "bfloat16" else self.name)

    @property
    def in_torch(self) -> Any:
        """The PyTorch dtype."""
        return getattr(sys.modules.get("torch") or need("torch", "a tensor of PyTorch"), self.name)


@dataclass(frozen=True)
class IntegerType:
    """A type of integers, or bool, by the name that PyTorch and NumPy give it."""

    name: str
    lowest: int
    largest: int

    def __str__(self) -> str:
        return self.name

    @property
    def in_numpy(self) -> Any:
        """The NumPy dtype."""
        return np.dtype(self.name)

    @property
    def in_torch(self) -> Any:
        """The PyTorch dtype."""
        return getattr(sys.modules.get("torch") or need("torch", "a tensor of PyTorch"), self.name)


FLOAT32 = FloatType("float32", 4, 3.4028234663852886e38)
FLOAT16 = FloatType("float16", 2, 65504.0)
BFLOAT16 = FloatType("bfloat16", 2, 3.3895313892515355e38)
FLOAT64 = FloatType("float64", 8, 1.7976931348623157e308)

#: The types of tensors; a frame stores a type's place here, or behind these that of an integer type.
DTYPES = (FLOAT32, FLOAT16, BFLOAT16, FLOAT64)
INTEGERS = (
    IntegerType("bool", 0, 1),
    IntegerType("uint8", 0, 255),
    *(IntegerType(f"int{bits}", -(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)),
)
#: The types of values on the wire.
VALUE_DTYPES = (FLOAT32, FLOAT16, BFLOAT16)
VALUE_NAMES = tuple(kind.name for kind in VALUE_DTYPES)

_BY_NAME = {kind.name: kind for kind in DTYPES}


def float_type(name: str, how: str) -> FloatType:
    """The type of that name. `how` says how to convert a tensor of another type."""
    if name not in _BY_NAME:
        raise DtypeError(
            f"cannot encode {name}; frames carry float16, bfloat16, float32 and float64 (convert with {how})"
        )
    return _BY_NAME[name]


def rounded(largest: float, wire: FloatType, given: FloatType) -> float:
    """A positive number after conversion to `wire` and then to `given`: infinity if it does not fit."""
    for kind in (wire, given):
        largest = float(narrowed(np.array([largest], np.float32), kind)[0])
    return largest


def narrowed(x: Any, kind: FloatType) -> Any:
    """A float32 array converted to another type, to the nearest value, ties to even.

    bfloat16 stays in a float32 array, whose values are then those of bfloat16.
    """
    if kind is BFLOAT16:
        return widened_bfloat16(bfloat16_bits(x))
    with np.errstate(over="ignore"):
        return x.astype(kind.in_numpy)


def bfloat16_bits(x: Any) -> Any:
    """The bits (uint16) of a float32 array in bfloat16, to the nearest value, ties to even. No NaN."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    return ((bits + (np.uint32(0x7FFF) + ((bits >> 16) & 1))) >> 16).astype(np.uint16)


def widened_bfloat16(bits: Any) -> Any:
    """The float32 array of the bits of bfloat16."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
