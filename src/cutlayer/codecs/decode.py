"""Decode and inspect frames: the one place where untrusted frames come in."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Buffer

from cutlayer.codecs import frame
from cutlayer.codecs.base import Reader
from cutlayer.codecs.kernels.dispatch import kernels_for
from cutlayer.codecs.registry import describe, from_header
from cutlayer.codecs.tensor_set.integers import decode_integers
from cutlayer.codecs.tensors import target
from cutlayer.errors import ChecksumError, PayloadError


@dataclass(frozen=True)
class FrameInfo:
    """The header of a frame, as `inspect` returns it."""

    codec: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    header_bytes: int
    payload_bytes: int
    signed: bool
    version: int = frame.VERSION
    # Whether there is a codec here that decodes it; if not, `codec` is only a name or a number.
    known: bool = field(default=True, repr=False)

    @property
    def bits_per_element(self) -> float:
        """Bits of the whole frame, header included, divided by the number of elements."""
        return 8 * (self.header_bytes + self.payload_bytes) / torch.Size(self.shape).numel()


def inspect(data: Buffer) -> FrameInfo:
    """Read a frame's header, also of an unknown codec. The payload is neither decoded nor checked."""
    header = frame.parse(frame.view(data), frame.MAX_ELEMENTS)
    found, known = describe(header)
    return FrameInfo(
        found,
        header.shape,
        header.dtype,
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
    device: torch.device | str | None = None,
) -> Tensor:
    """The tensor in a frame, in the shape and dtype that were encoded.

    `out` (a tensor or array of that shape and dtype) takes the result and is returned. Frames that claim
    more than `max_elements` are refused before anything is allocated. Every malformation raises a
    subclass of FrameError, and then `out` is unchanged.
    """
    view = frame.view(data)
    if not view.readonly:  # copied, so that nobody changes the bytes between check and use
        view = memoryview(bytes(view))
    header = frame.parse(view, max_elements)
    place = torch.device(device or "cpu") if out is None else None
    into = target(out, header.shape, header.dtype) if out is not None else None
    kernels = kernels_for(into.device if into is not None else place)  # type: ignore[arg-type]
    if kernels.checksum(view, frame.CHECKED_FROM) != frame.stated_checksum(view):
        raise ChecksumError("the checksum does not match: the bytes were changed on the way; send again")
    codec, side = from_header(header)
    if header.dtype in frame.INTEGERS:
        found = decode_integers(Reader(view, header, kernels, side))
        return found.to(place) if into is None else into.copy_(found)
    expected = codec.payload_bytes(header.shape, header.signed) if codec.fixed_size else header.payload_bytes
    if expected != header.payload_bytes:
        raise PayloadError(
            f"{codec} needs {expected} payload bytes for shape {header.shape}, the frame has "
            f"{header.payload_bytes}"
        )
    if into is None:
        into = kernels.empty(header.shape, header.dtype, place)
    direct = into.dtype == torch.float32 and into.is_contiguous()
    work = into if direct else kernels.empty(header.shape, torch.float32, into.device)
    codec.read(Reader(view, header, kernels, side), work.view(codec.sections(header.shape)))
    if not direct:
        narrowed = work.to(into.dtype)
        if not torch.isfinite(narrowed).all():
            raise PayloadError(f"a value is too large for the tensor's dtype, {header.dtype}")
        into.copy_(narrowed)
    return into
