"""`sign`: one bit an element, and one mean magnitude a section."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from cutlayer.codecs import Codec, fields


@dataclass(frozen=True)
class Sign(Codec):
    """Keep the sign of each element; every magnitude becomes the mean one."""

    name: ClassVar[str] = "sign"
    advice: ClassVar[str] = "one bit an element, for gradients; it ruins feature maps"

    scope: str = fields.choice("tensor", "tensor", "sample", help="one mean for all, or one a sample")

    def payload_bytes(self, shape, signed=False):
        rows, d = self.sections(shape)
        return rows * (4 + (d + 7) // 8)

    def pack(self, x, seed):
        mean = x.abs().double().mean(1, keepdim=True).cpu().numpy().astype("<f4")
        bits = np.packbits(x.cpu().numpy() < 0, axis=1, bitorder="little")
        return np.hstack([mean.view(np.uint8), bits]).tobytes()

    def unpack(self, payload, shape, signed):
        rows, d = shape
        raw = np.frombuffer(payload, np.uint8).reshape(rows, -1)
        mean = raw[:, :4].copy().view("<f4")
        negative = np.unpackbits(raw[:, 4:], axis=1, count=d, bitorder="little")
        return torch.from_numpy(np.where(negative, -mean, mean))
