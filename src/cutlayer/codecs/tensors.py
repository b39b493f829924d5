"""Check input and output tensors, and bring inputs into contiguous float32, on which codecs work."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Buffer

from cutlayer.codecs.frame import DTYPES, MAX_ELEMENTS, MAX_RANK
from cutlayer.errors import (
    DtypeError,
    EmptyTensorError,
    InputError,
    NonFiniteError,
    OutputError,
    RangeError,
    TooLargeError,
)

VALUE_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
VALUE_NAMES = ("float32", "float16", "bfloat16")


@dataclass(slots=True)
class Source:
    """A tensor to encode: as it was given, and as contiguous float32."""

    given: Tensor
    flat: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape as given."""
        return tuple(self.given.shape)

    def refuse(self) -> InputError:
        """The error for a tensor in which a kernel found NaN or infinity."""
        bad = ~torch.isfinite(self.given)
        if not bool(bad.any()):
            return RangeError(
                "a value is too large for float32, in which frames carry values; scale the tensor"
            )
        where = bad.nonzero()[0].tolist()
        return NonFiniteError(
            f"{int(bad.sum())} of {self.given.numel()} values are NaN or infinite, the first at "
            f"{tuple(where)}; nothing was encoded"
        )


def source(x: Any) -> Source:
    """Check a tensor or array and bring it into the form that codecs work on."""
    if isinstance(x, np.ndarray):
        x = _from_numpy(x)
    if not isinstance(x, Tensor):
        raise DtypeError(f"expected a torch.Tensor or numpy.ndarray, got {type(x).__name__}")
    if x.dtype not in DTYPES:
        raise DtypeError(
            f"cannot encode {str(x.dtype).removeprefix('torch.')}; frames carry float16, bfloat16, "
            "float32 and float64 (convert with x.float())"
        )
    if x.layout is not torch.strided or x.device.type == "meta":
        raise InputError(f"cannot encode a tensor of layout {x.layout} on {x.device}; make it dense")
    if x.numel() == 0:
        raise EmptyTensorError(f"a tensor of shape {tuple(x.shape)} has no elements to encode")
    if x.numel() > MAX_ELEMENTS:
        raise TooLargeError(f"{x.numel():,} elements; a frame takes at most {MAX_ELEMENTS:,}: split it")
    if x.dim() > MAX_RANK:
        raise TooLargeError(f"{x.dim()} dimensions; a frame takes at most {MAX_RANK}: reshape it")
    given = x.detach()
    if x.dtype is torch.float32 and x.is_contiguous() and not x.is_neg():
        return Source(given, given.view(-1))
    return Source(given, given.resolve_neg().to(torch.float32).contiguous().view(-1))


def target(out: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Check the argument `out=`, and give it as a tensor."""
    tensor = torch.from_numpy(out) if isinstance(out, np.ndarray) and out.flags.writeable else out
    if not isinstance(tensor, Tensor):
        raise OutputError(f"out= must be a tensor or a writable array, not {type(out).__name__}")
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        raise OutputError(
            f"out= has shape {tuple(tensor.shape)} and {tensor.dtype}; the frame holds {shape} and {dtype}"
        )
    if tensor.requires_grad:
        raise OutputError("out= requires a gradient; pass out.detach()")
    return tensor


def bytes_of(x: Tensor) -> memoryview:
    """The bytes of a contiguous CPU tensor, without a copy."""
    return x.reshape(-1).view(torch.uint8).numpy().data


def tensor_from(data: Buffer, offset: int, count: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    """A tensor of `count` items copied out of a buffer."""
    result = torch.empty(count, dtype=dtype)
    raw = result.view(torch.uint8).numpy()
    raw[:] = np.frombuffer(memoryview(data), np.uint8, raw.nbytes, offset)
    return result


def _from_numpy(x: np.ndarray[Any, Any]) -> Tensor:
    if x.dtype.kind != "f" or x.dtype.itemsize > 8:
        raise DtypeError(
            f"cannot encode {x.dtype}; frames carry float16, bfloat16, float32 and float64 "
            "(convert with x.astype('float32'))"
        )
    native = x.astype(x.dtype.newbyteorder("="), copy=False)
    # torch has no read-only tensors and no negative strides: such arrays are copied.
    plain = native if native.flags.writeable and native.flags.c_contiguous else native.copy()
    return torch.from_numpy(plain)
