"""Benchmark codecs on one tensor: size, error and speed."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cutlayer.codecs import Codec, decode
from cutlayer.split import relative_error

# The paper's policies, the authors' rounding, and the rest of the family for comparison.
DEFAULT_CODECS = (
    "dense",
    "dense:dtype=float16",
    "qu:bits=3",
    "sp:ratio=0.95875",
    "rt:ratio=0.95875,alpha=0.1",
    "ms:ratio=0.99,bits=2",
    "ms:ratio=0.99,bits=2,rounding=nearest",
    "km:bits=3",
    "ems:bpe=1.0",
    "ems:error=0.05",
)


@dataclass(frozen=True)
class Row:
    """One codec on one tensor. Speeds are of the tensor's float32 bytes; ratios are to memcpy."""

    codec: str
    bytes: int
    bits_per_element: float
    error: float
    cosine: float
    encode_gbps: float
    decode_gbps: float
    encode_ratio: float
    decode_ratio: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def best(work: Callable[[], object], *, least: int = 3, seconds: float = 0.5) -> float:
    """The shortest time of several runs: what the work costs when nothing disturbs it."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < least or (time.perf_counter() < end and len(times) < 200):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def memcpy_seconds(x: Tensor, *, least: int = 5, seconds: float = 0.5) -> float:
    """The time to copy the tensor's bytes, into memory that is already there."""
    # NumPy copies contiguous memory with the C library's memcpy; torch has a slower loop of its own.
    source, target = x.contiguous().numpy(), np.empty(tuple(x.shape), np.float32)
    target.fill(0)
    return best(lambda: np.copyto(target, source), least=least, seconds=seconds)


def bench(codec: Codec, x: Tensor, *, copy: float, seconds: float = 0.5) -> Row:
    """Measure one codec. `copy` is the tensor's memcpy time in this run."""
    frame = codec.encode(x)
    out = torch.empty_like(x)

    def decoded() -> object:
        return decode(frame, out=out, max_elements=x.numel())

    decoded()
    encoding = best(lambda: codec.encode(x), seconds=seconds)
    decoding = best(decoded, seconds=seconds)
    size = x.numel() * 4 / 1e9
    a, b = x.float().flatten(), out.float().flatten()
    return Row(
        codec=str(codec),
        bytes=len(frame),
        bits_per_element=8 * len(frame) / x.numel(),
        error=relative_error(x, out),
        cosine=float(torch.nn.functional.cosine_similarity(a, b, dim=0)),
        encode_gbps=size / encoding,
        decode_gbps=size / decoding,
        encode_ratio=copy / encoding,
        decode_ratio=copy / decoding,
    )
