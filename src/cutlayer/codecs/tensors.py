"""Check input and output tensors, and bring inputs into contiguous float32, on which codecs work.

The compiled kernels work on NumPy arrays, the reference on tensors of PyTorch. What is as large as the tensor
(`Tensor` below) is of the kernels' kind; tables and other small arrays are always NumPy's.
"""

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import Buffer

from cutlayer.codecs.frame import MAX_ELEMENTS, MAX_RANK
from cutlayer.codecs.kernels.float_types import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    VALUE_DTYPES,
    VALUE_NAMES,
    FloatType,
    IntegerType,
    bfloat16_bits,
    float_type,
    widened_bfloat16,
)
from cutlayer.errors import (
    DtypeError,
    EmptyTensorError,
    InputError,
    NonFiniteError,
    OutputError,
    RangeError,
    TooLargeError,
)
from cutlayer.imports import need

__all__ = ["VALUE_DTYPES", "VALUE_NAMES", "Source", "Tensor", "host", "source"]

#: A NumPy array with the compiled kernels, a torch.Tensor with the reference.
Tensor = Any


def loaded_torch() -> Any:
    """PyTorch if the process has imported it, else None: a tensor of PyTorch cannot exist without it."""
    return sys.modules.get("torch")


def is_torch(x: Any) -> bool:
    """Whether this is a tensor of PyTorch."""
    torch = loaded_torch()
    return torch is not None and isinstance(x, torch.Tensor)


def host(x: Any) -> Any:
    """A tensor of either kind as a NumPy array, without a copy if it is in the processor's memory."""
    return x if isinstance(x, np.ndarray) else x.detach().cpu().numpy()


def count(x: Any) -> int:
    """How many elements a tensor of either kind has."""
    return math.prod(x.shape)


def in_torch(x: Any) -> Any:
    """A tensor of either kind as one of PyTorch, without a copy where that is possible."""
    if not isinstance(x, np.ndarray):
        return x
    # torch has no read-only tensors: such arrays are copied.
    torch = loaded_torch() or need("torch", "a codec that works on tensors of PyTorch")
    return torch.from_numpy(x if x.flags.writeable else x.copy())


@dataclass(slots=True)
class Source:
    """A tensor to encode: as it was given, and as contiguous float32."""

    given: Any
    flat: Tensor
    dtype: FloatType
    shape: tuple[int, ...]
    device: str = "cpu"

    def refuse(self) -> InputError:
        """The error for a tensor in which a kernel found NaN or infinity."""
        given = self.given if isinstance(self.given, np.ndarray) else host(self.given.double())
        bad = ~np.isfinite(given)
        if not bad.any():
            return RangeError(
                "a value is too large for float32, in which frames carry values; scale the tensor"
            )
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        return NonFiniteError(
            f"{int(bad.sum())} of {bad.size} values are NaN or infinite, the first at "
            f"{where}; nothing was encoded"
        )


def source(x: Any) -> Source:
    """Check a tensor or array and bring it into the form that codecs work on.

    Arrays of NumPy, tensors of PyTorch and whatever speaks DLPack are taken without a copy.
    """
    if isinstance(x, np.ndarray):
        return _from_numpy(x)
    if is_torch(x):
        return _from_torch(x)
    if hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
        return _from_dlpack(x)
    raise DtypeError(
        f"expected a torch.Tensor, a numpy.ndarray or what speaks DLPack, got {type(x).__name__}"
    )


def _check(elements: int, shape: tuple[int, ...]) -> None:
    if elements == 0:
        raise EmptyTensorError(f"a tensor of shape {shape} has no elements to encode")
    if elements > MAX_ELEMENTS:
        raise TooLargeError(f"{elements:,} elements; a frame takes at most {MAX_ELEMENTS:,}: split it")
    if len(shape) > MAX_RANK:
        raise TooLargeError(f"{len(shape)} dimensions; a frame takes at most {MAX_RANK}: reshape it")


def _from_numpy(x: Any) -> Source:
    kind = float_type(x.dtype.name, "x.astype('float32')")
    _check(x.size, x.shape)
    if x.dtype == np.float32 and x.flags.c_contiguous and x.dtype.isnative:
        return Source(x, x.reshape(-1), kind, x.shape)
    if kind is BFLOAT16:  # of ml_dtypes, which NumPy itself does not know
        x = np.asarray(x, np.float32)
    with np.errstate(over="ignore"):
        return Source(x, np.ascontiguousarray(x, np.float32).reshape(-1), kind, x.shape)


def _from_torch(x: Any) -> Source:
    torch = loaded_torch()
    kind = float_type(str(x.dtype).removeprefix("torch."), "x.float()")
    shape = tuple(x.shape)
    if x.layout is not torch.strided or x.device.type == "meta":
        raise InputError(f"cannot encode a tensor of layout {x.layout} on {x.device}; make it dense")
    _check(x.numel(), shape)
    given = x.detach()
    if x.dtype is torch.float32 and x.is_contiguous() and not x.is_neg():
        flat = given.view(-1)
    else:
        flat = given.resolve_neg().to(torch.float32).contiguous().view(-1)
    return Source(given, flat, kind, shape, x.device.type)


def _from_dlpack(x: Any) -> Source:
    device, _ = x.__dlpack_device__()
    if int(device) != 1:  # kDLCPU
        torch = need("torch", "encoding a tensor that is not in the processor's memory")
        return _from_torch(torch.from_dlpack(x))
    try:
        return _from_numpy(np.from_dlpack(x))
    except (BufferError, TypeError, RuntimeError) as error:
        if loaded_torch() is not None:
            return _from_torch(loaded_torch().from_dlpack(x))
        raise DtypeError(
            f"a {type(x).__name__} cannot be taken over by DLPack ({error}); give it as a NumPy array"
        ) from None


def target(out: Any, shape: tuple[int, ...], dtype: FloatType | IntegerType) -> Any:
    """Check the argument `out=`, and give it as a tensor or array that can be written."""
    if isinstance(out, np.ndarray) and out.flags.writeable:
        found = dtype.name if dtype is BFLOAT16 and out.dtype == np.float32 else out.dtype.name
    elif is_torch(out):
        found = str(out.dtype).removeprefix("torch.")
        if out.requires_grad:
            raise OutputError("out= requires a gradient; pass out.detach()")
    else:
        raise OutputError(f"out= must be a tensor or a writable array, not {type(out).__name__}")
    if tuple(out.shape) != shape or found != dtype.name:
        raise OutputError(
            f"out= has shape {tuple(out.shape)} and {found}; the frame holds {shape} and {dtype}"
        )
    return out


def to_wire(x: Tensor, kind: FloatType) -> Buffer:
    """The bytes of float32 elements in a type of values, without a copy if that is float32."""
    if kind is FLOAT32:
        return host(x).reshape(-1).view(np.uint8).data  # type: ignore[no-any-return]
    torch = loaded_torch()
    if torch is not None:  # converts several times as fast as NumPy
        narrow = in_torch(x).to(kind.in_torch).cpu().view(-1).view(torch.uint8)
        return narrow.numpy().data  # type: ignore[no-any-return]
    narrow = x.astype(np.float16) if kind is FLOAT16 else bfloat16_bits(x)
    return narrow.reshape(-1).view(np.uint8).data  # type: ignore[no-any-return]


def from_wire(data: Buffer, offset: int, out: Tensor, kind: FloatType) -> None:
    """Fill `out` (float32, of any shape) with values of a type that stand in a buffer."""
    if isinstance(out, np.ndarray) and kind is FLOAT32:
        out.reshape(-1).view(np.uint8)[:] = np.frombuffer(memoryview(data), np.uint8, out.nbytes, offset)
        return
    torch = loaded_torch()
    if torch is None:
        stored = np.float16 if kind is FLOAT16 else np.uint16
        # A copy first: the values may stand at any address.
        raw = np.frombuffer(memoryview(data), np.uint8, kind.itemsize * out.size, offset).copy().view(stored)
        out[...] = (raw if kind is FLOAT16 else widened_bfloat16(raw)).reshape(out.shape)
        return
    values = tensor_from(data, offset, count(out), kind.in_torch)
    in_torch(out).copy_(values.view(out.shape))


def bytes_of(x: Any) -> memoryview:
    """The bytes of a contiguous tensor of PyTorch in the processor's memory, without a copy."""
    found: memoryview = x.reshape(-1).view(loaded_torch().uint8).numpy().data
    return found


def tensor_from(data: Buffer, offset: int, count: int, dtype: Any = None) -> Any:
    """A tensor of PyTorch of `count` items copied out of a buffer; of uint8 if no dtype is given."""
    torch = loaded_torch() or need("torch", "a tensor of PyTorch")
    result = torch.empty(count, dtype=dtype or torch.uint8)
    raw = result.view(torch.uint8).numpy()
    raw[:] = np.frombuffer(memoryview(data), np.uint8, raw.nbytes, offset)
    return result
