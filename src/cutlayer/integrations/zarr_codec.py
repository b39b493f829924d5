"""cutlayer's codecs for arrays on disk: as a numcodecs codec (Zarr format 2) and as a Zarr 3 serializer.

    zarr.create_array("maps.zarr", data=maps, serializer=FrameSerializer("ems:bpe=1.0"))
    zarr.open_array("maps.zarr")[0]

Each chunk is one frame. Most codecs are lossy. Arrays must be float16, float32 or float64, and finite. Where
cutlayer is installed, Zarr and numcodecs find the codec by its entry point; elsewhere call `register()`.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numcodecs.abc import Codec as NumcodecsCodec
from numcodecs.compat import ndarray_copy
from numcodecs.registry import register_codec as register_numcodecs
from zarr.abc.codec import ArrayBytesCodec
from zarr.registry import register_codec as register_zarr

from cutlayer.codecs.decode import decode
from cutlayer.codecs.registry import codec

#: The name under which arrays name the codec.
NAME = "cutlayer"


class FrameCodec(NumcodecsCodec):
    """A codec of numcodecs: an array to a frame, and back."""

    codec_id = NAME

    def __init__(self, spec: str = "ems:bpe=1.0") -> None:
        self.spec = str(codec(spec))

    def encode(self, buf: Any) -> bytes:
        """The frame of an array."""
        return codec(self.spec).encode(np.ascontiguousarray(buf))

    def decode(self, buf: Any, out: Any = None) -> Any:
        """The array of a frame, in `out` if that is given."""
        found = decode(bytes(buf), like="numpy")
        return found if out is None else ndarray_copy(found, out)


class FrameSerializer(ArrayBytesCodec):
    """A serializer of Zarr 3: chunks to frames, and back."""

    is_fixed_size = False

    def __init__(self, spec: str = "ems:bpe=1.0") -> None:
        self.spec = str(codec(spec))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrameSerializer) and other.spec == self.spec

    def __hash__(self) -> int:
        return hash(self.spec)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """From the metadata of an array."""
        return cls(data["configuration"]["spec"])

    def to_dict(self) -> dict[str, Any]:
        """For the metadata of an array."""
        return {"name": NAME, "configuration": {"spec": self.spec}}

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
        """Frames have sizes of their own."""
        raise NotImplementedError

    async def _encode_single(self, chunk_array: Any, chunk_spec: Any) -> Any:
        frame = codec(self.spec).encode(np.ascontiguousarray(chunk_array.as_numpy_array()))
        return chunk_spec.prototype.buffer.from_bytes(frame)

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        elements = int(np.prod(chunk_spec.shape))
        found = decode(chunk_bytes.to_bytes(), max_elements=elements, like="numpy")
        native = chunk_spec.dtype.to_native_dtype()
        shaped = found.reshape(chunk_spec.shape).astype(native, copy=False)
        return chunk_spec.prototype.nd_buffer.from_numpy_array(shaped)


def register() -> None:
    """Make numcodecs and Zarr know the codec under its name."""
    register_numcodecs(FrameCodec)
    register_zarr(NAME, FrameSerializer)
