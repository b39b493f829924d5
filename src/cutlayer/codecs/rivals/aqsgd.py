"""AQ-SGD (2022): activations travel as differences to the same sample's last visit.

A policy around any codec, not a codec: both ends hold a `SampleMemory`. The first visit of a sample travels
as it is. Later ones travel as the quantized change, which both ends add to what they remember, so that errors
do not pile up: each difference is taken to what the server has.
"""

import math

from torch import Tensor

from cutlayer.codecs.base import Codec
from cutlayer.codecs.decode import decode
from cutlayer.codecs.entropy.layout import ByteReader, malformed, varint
from cutlayer.codecs.rivals.sample_memory import SampleMemory


class ActivationDifferences:
    """One end of a stream of batches. `first` carries first visits, `change` the differences.

    >>> ends = [ActivationDifferences(SampleMemory(1000, (64, 8, 8)), first, change) for _ in range(2)]
    >>> message = ends[0].encode(x, indices, seed=step)
    >>> y = ends[1].decode(message, indices)  # what ends[0] remembers, too
    """

    def __init__(self, memory: SampleMemory, first: Codec, change: Codec) -> None:
        self.memory = memory
        self.first, self.change = first, change

    def encode(self, x: Tensor, indices: Tensor, seed: int = 0) -> bytes:
        """The message for a batch; remembers what it decodes to."""
        known = self.memory.known(indices)
        parts = [b"", b""]
        if not known.all():
            parts[0] = self.first.encode(x[~known], seed=seed)
        if known.any():
            before = self.memory.recall(indices[known])
            parts[1] = self.change.encode(x.detach()[known].cpu().float() - before, seed=seed)
        message = b"".join(varint(len(part)) + part for part in parts)
        self.decode(message, indices)
        return message

    def decode(self, message: bytes, indices: Tensor) -> Tensor:
        """The batch of a message, as it is remembered. A wrong one changes nothing and raises FrameError."""
        known = self.memory.known(indices)
        reader = ByteReader(memoryview(message))
        new = self._part(reader, int((~known).sum()))
        change = self._part(reader, int(known.sum()))
        if reader.at != len(message):
            raise malformed("bytes follow its end")
        found = self.memory.recall(indices)
        if new is not None:
            found[~known] = new
        if change is not None:
            found[known] += change
        self.memory.store(indices, found)
        return self.memory.recall(indices)

    def _part(self, reader: ByteReader, samples: int) -> Tensor | None:
        frame = bytes(reader.take(reader.varint(len(reader.data))))
        if bool(frame) != bool(samples):
            raise malformed(f"{len(frame)} bytes for {samples} samples")
        return sample_frame(frame, samples, self.memory.shape) if samples else None


def sample_frame(frame: bytes, samples: int, shape: tuple[int, ...]) -> Tensor:
    """The tensor of a frame that has to hold so many samples of that shape."""
    tensor: Tensor = decode(frame, max_elements=samples * math.prod(shape), like="torch")
    if tuple(tensor.shape) != (samples, *shape):
        raise malformed(f"a tensor of shape {tuple(tensor.shape)} instead of {(samples, *shape)}")
    return tensor.float()
