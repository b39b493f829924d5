"""The error of a tensor under compression."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cutlayer.codecs import Codec, decode
from cutlayer.errors import InputError


@dataclass(frozen=True)
class CompressionError:
    """The error of one tensor under compression, x - y."""

    norm: float
    """||x - y||, of the whole tensor: the paper's ||epsilon||."""
    sample_norm: float
    """The mean of ||x_i - y_i|| over samples: does not grow with the batch."""
    relative: float
    """||x - y||^2 / ||x||^2; 0 if both are zero, infinite if only x is."""


def compression_error(x: Tensor, codec: Codec | Tensor, *, seed: int = 0) -> CompressionError:
    """The error of a tensor under a codec, or against another tensor. The first dimension is the batch.

    >>> compression_error(torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 4.0]])).relative
    0.36
    """
    y = codec if isinstance(codec, Tensor) else decode(codec.encode(x, seed=seed))
    if x.shape != y.shape:
        raise InputError(f"a tensor of shape {list(x.shape)} cannot be compared with one of {list(y.shape)}")
    rows = x.shape[0] if x.dim() else 1
    a, b = (t.detach().reshape(rows, -1) for t in (x, y))
    # Sums of millions of squares need double precision; the squares themselves do not.
    lost = (a - b).square_().sum(1, dtype=torch.float64)
    whole, missing = float(a.square().sum(dtype=torch.float64)), float(lost.sum())
    relative = missing / whole if whole else (0.0 if missing == 0 else float("inf"))
    return CompressionError(missing**0.5, float(lost.sqrt().mean()), relative)
