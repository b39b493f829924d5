"""SplitCom (2026): samples whose activation has hardly changed are not sent; the server reuses the last one.

A policy around any codec, like `aqsgd`: both ends hold a `SampleMemory`.
"""

import numpy as np
import torch
from torch import Tensor

from cutlayer.codecs.base import Codec
from cutlayer.codecs.entropy.layout import ByteReader, malformed
from cutlayer.codecs.rivals.aqsgd import sample_frame
from cutlayer.codecs.rivals.sample_memory import SampleMemory
from cutlayer.errors import ParameterError


class SkipUnchanged:
    """One end of a stream of batches.

    A sample is sent, under `codec`, if the cosine similarity to what is remembered of it is below
    `threshold`. A message is a bit for each sample (1: sent), and the frame of those that are sent.
    """

    def __init__(self, memory: SampleMemory, codec: Codec, threshold: float) -> None:
        if not -1 <= threshold <= 1:
            raise ParameterError(f"a cosine similarity lies between -1 and 1; the threshold is {threshold}")
        self.memory = memory
        self.codec = codec
        self.threshold = threshold

    def encode(self, x: Tensor, indices: Tensor, seed: int = 0) -> bytes:
        """The message for a batch; remembers what it decodes to."""
        now = x.detach().cpu().float().flatten(1)
        before = self.memory.recall(indices).flatten(1)
        alike = torch.nn.functional.cosine_similarity(now, before)
        sent = ~self.memory.known(indices) | (alike < self.threshold)
        message = np.packbits(sent.numpy(), bitorder="little").tobytes()
        if sent.any():
            message += self.codec.encode(x[sent], seed=seed)
        self.decode(message, indices)
        return message

    def decode(self, message: bytes, indices: Tensor) -> Tensor:
        """The batch of a message, as it is remembered. A wrong one changes nothing and raises FrameError."""
        known = self.memory.known(indices)
        reader = ByteReader(memoryview(message))
        bits = np.unpackbits(reader.array(np.uint8, -(-len(indices) // 8)), bitorder="little")
        if bits[len(indices) :].any():
            raise malformed("the unused bits at the end of a bit stream are not zero")
        sent = torch.from_numpy(bits[: len(indices)].astype(bool))
        if (~sent & ~known).any():
            raise malformed("a sample was left out that was never sent")
        frame = bytes(reader.take(len(message) - reader.at))
        if bool(frame) != bool(sent.any()):
            raise malformed(f"{len(frame)} bytes for {int(sent.sum())} samples")
        if frame:
            self.memory.store(indices[sent], sample_frame(frame, int(sent.sum()), self.memory.shape))
        return self.memory.recall(indices)


class BangBang:
    """The threshold by bang-bang control: stricter while the loss gets worse, looser while it improves."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high
        self.threshold = high
        self._best = float("inf")

    def update(self, loss: float) -> float:
        """The threshold after an epoch whose loss was this."""
        self.threshold = self.low if loss < self._best else self.high
        self._best = min(self._best, loss)
        return self.threshold
