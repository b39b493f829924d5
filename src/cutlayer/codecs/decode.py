"""Decode and inspect frames: the one place where untrusted frames come in."""

import importlib.util
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import numpy as np
from typing_extensions import Buffer

from cutlayer.codecs import frame
from cutlayer.codecs.base import Reader
from cutlayer.codecs.ems import EntropyCodedMask
from cutlayer.codecs.kernels.dispatch import kernels_for
from cutlayer.codecs.kernels.float_types import FLOAT32, FloatType, IntegerType, narrowed
from cutlayer.codecs.registry import describe, from_header
from cutlayer.codecs.tensor_set.integers import decode_integers
from cutlayer.codecs.tensors import in_torch, is_torch, loaded_torch, target
from cutlayer.errors import ChecksumError, HeaderError, LimitError, ParameterError, PayloadError
from cutlayer.imports import need

Like = Literal["torch", "numpy"]


@dataclass(frozen=True)
class FrameInfo:
    """The header of a frame, as `inspect` returns it."""

    codec: str
    shape: tuple[int, ...]
    dtype: Any
    """A torch.dtype where PyTorch is installed, else its name."""
    header_bytes: int
    payload_bytes: int
    signed: bool
    version: int = frame.VERSION
    # Whether there is a codec here that decodes it; if not, `codec` is only a name or a number.
    known: bool = field(default=True, repr=False)

    @property
    def bits_per_element(self) -> float:
        """Bits of the whole frame, header included, divided by the number of elements."""
        return 8 * (self.header_bytes + self.payload_bytes) / math.prod(self.shape)


def inspect(data: Buffer) -> FrameInfo:
    """Read a frame's header, also of an unknown codec. The payload is neither decoded nor checked."""
    header = frame.parse(frame.view(data), frame.MAX_ELEMENTS)
    found, known = describe(header)
    return FrameInfo(
        found,
        header.shape,
        header.dtype.in_torch if torch_installed() else header.dtype.name,
        header.payload_offset,
        header.payload_bytes,
        header.signed,
        known=known,
    )


def decode(
    data: Buffer,
    *,
    out: Any = None,
    max_elements: int = frame.DEFAULT_LIMIT,
    device: Any = None,
    like: Like | None = None,
) -> Any:
    """The tensor in a frame, in the shape and dtype that were encoded.

    It is a torch.Tensor where PyTorch is installed and a NumPy array otherwise; `like` says which. NumPy has
    no bfloat16: such a tensor becomes a float32 array. `out` (a tensor or array of the frame's shape and
    dtype) takes the result and is returned. Frames that claim more than `max_elements` are refused before
    anything is allocated. Every malformation raises a subclass of FrameError, and then `out` is unchanged.
    """
    view = frame.view(data)
    if not view.readonly:  # copied, so that nobody changes the bytes between check and use
        view = memoryview(bytes(view))
    header = frame.parse(view, max_elements)
    into = target(out, header.shape, header.dtype) if out is not None else None
    place = _place(into, device, like)
    kernels = kernels_for("cpu" if place is None else place.type)
    if kernels.checksum(view, frame.CHECKED_FROM) != frame.stated_checksum(view):
        raise ChecksumError("the checksum does not match: the bytes were changed on the way; send again")
    codec, side = from_header(header)
    if isinstance(header.dtype, IntegerType):
        return _integers(decode_integers(Reader(view, header, kernels, side), header.dtype), into, place)
    expected = codec.payload_bytes(header.shape, header.signed) if codec.fixed_size else header.payload_bytes
    if expected != header.payload_bytes:
        raise PayloadError(
            f"{codec} needs {expected} payload bytes for shape {header.shape}, the frame has "
            f"{header.payload_bytes}"
        )
    if into is None:
        into = _empty(header.shape, header.dtype, place)
        kernels.advise(into)
    direct = header.dtype is FLOAT32 and _contiguous(into)
    work = into if direct else _empty(header.shape, FLOAT32, place)
    codec.read(Reader(view, header, kernels, side), kernels.own(work).reshape(codec.sections(header.shape)))
    if not direct:
        _narrow(work, into, header.dtype)
    return into


def decode_many(
    frames: Sequence[Buffer],
    *,
    out: Any = None,
    max_elements: int = frame.DEFAULT_LIMIT,
    device: Any = None,
    like: Like | None = None,
) -> Any:
    """The tensors of many frames as one batch: one after the other along the first dimension.

    They must agree in all other dimensions and in dtype. Frames of `ems` are decoded by several threads in
    one call, others one after the other. `max_elements` limits all frames together. `out`, `device` and
    `like` are as in `decode`. If a frame is malformed, the error is raised, and `out` is unchanged.
    """
    views = [frame.view(data) for data in frames]
    # Copied where they can change, so that nobody does so between check and use.
    views = [view if view.readonly else memoryview(bytes(view)) for view in views]
    headers = [frame.parse(view, max_elements) for view in views]
    if not headers:
        raise ParameterError("there are no frames to decode; give at least one")
    kinds = {(header.dtype, len(header.shape), header.shape[1:]) for header in headers}
    if len(kinds) > 1 or not headers[0].shape:
        found = ", ".join(sorted({f"{header.shape} {header.dtype}" for header in headers}))
        raise HeaderError(
            f"frames of one batch agree in dtype and in all dimensions but the first, not {found}"
        )
    if (total := sum(header.elements for header in headers)) > max_elements:
        raise LimitError(f"the frames claim {total:,} elements together, the limit is {max_elements:,}")
    dtype, rows = headers[0].dtype, [header.shape[0] for header in headers]
    shape = (sum(rows), *headers[0].shape[1:])
    into = target(out, shape, dtype) if out is not None else None
    place = _place(into, device, like)
    if isinstance(dtype, FloatType):
        into = _empty(shape, dtype, place) if into is None else into
        if dtype is FLOAT32 and _contiguous(into) and _in_one_call(views, headers, rows, into, place):
            return into
    # One by one, all of them before anything is written.
    parts = [decode(view, max_elements=max_elements, device=place, like=like) for view in views]
    if into is None:
        into = np.concatenate(parts) if place is None else loaded_torch().cat(parts)
        return into
    at = 0
    for part, count in zip(parts, rows, strict=True):
        into[at : at + count] = in_torch(part) if is_torch(into) else part
        at += count
    return into


def _in_one_call(
    views: list[memoryview], headers: list[frame.Header], rows: list[int], into: Any, place: Any
) -> bool:
    """Decode frames of `ems` into a batch; False if there are others, or if one is malformed."""
    kernels = kernels_for("cpu" if place is None else place.type)
    payloads, at = [], 0
    for view, header, count in zip(views, headers, rows, strict=True):
        if kernels.checksum(view, frame.CHECKED_FROM) != frame.stated_checksum(view):
            return False
        codec, side = from_header(header)
        if not isinstance(codec, EntropyCodedMask) or not codec.levels:
            return False
        part = kernels.own(into[at : at + count]).reshape(codec.sections(header.shape))
        payloads.append(codec.payload(Reader(view, header, kernels, side), part))
        at += count
    return kernels.ems_decode_sections(payloads)


def _integers(found: Any, into: Any, place: Any) -> Any:
    """Decoded integers, an array, where they are wanted."""
    if into is None:
        return found if place is None else in_torch(found).to(place)
    into[...] = in_torch(found) if is_torch(into) else found
    return into


def torch_installed() -> bool:
    """Whether PyTorch is there, without importing it."""
    return loaded_torch() is not None or _found()


@cache
def _found() -> bool:
    return "torch" not in sys.modules and importlib.util.find_spec("torch") is not None


def _place(into: Any, device: Any, like: Like | None) -> Any:
    """The torch.device of the result; None if it is a NumPy array."""
    if like not in (None, "torch", "numpy"):
        raise ParameterError(f"like={like!r} is not allowed; expected 'torch' or 'numpy'")
    if into is not None:
        return into.device if is_torch(into) else None
    if like == "numpy" or (like is None and device is None and not torch_installed()):
        return None
    torch = loaded_torch() or need("torch", "decoding to a tensor of PyTorch")
    return torch.device(device or "cpu")


def _empty(shape: tuple[int, ...], dtype: FloatType, place: Any) -> Any:
    if place is None:
        return np.empty(shape, dtype.in_numpy)
    return loaded_torch().empty(shape, dtype=dtype.in_torch, device=place)


def _contiguous(x: Any) -> bool:
    return bool(x.flags.c_contiguous if isinstance(x, np.ndarray) else x.is_contiguous())


def _narrow(work: Any, into: Any, dtype: FloatType) -> None:
    """Convert decoded float32 to the dtype of the tensor."""
    if isinstance(into, np.ndarray):
        values = narrowed(work, dtype)
        finite = np.isfinite(values).all()
    else:
        torch = loaded_torch()
        values = in_torch(work).to(into.dtype)
        finite = torch.isfinite(values).all()
    if not finite:
        raise PayloadError(f"a value is too large for the tensor's dtype, {dtype}")
    into[...] = values
