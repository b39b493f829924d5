"""`CutLayer`: the cut as a layer, to train under compression in one process."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from cutlayer.errors import InputError


class TensorCodec(Protocol):
    """The methods of a codec that the layer uses."""

    def encode(self, x: Any, *, seed: int | None = None) -> bytes:
        """A tensor as bytes."""

    def decode(self, data: bytes, *, out: Any = None) -> Tensor:
        """The bytes as a tensor, written into `out`."""

    def deterministic(self) -> "TensorCodec":
        """The form for evaluation."""


@dataclass(frozen=True)
class Crossing:
    """Bytes and error of one tensor that crossed the cut."""

    bytes: int
    raw_bytes: int
    error: float | None
    """Relative squared error, ||x - y||^2 / ||x||^2; None if it was not measured."""

    @property
    def saving(self) -> float:
        """The compression ratio: bytes as float32 divided by bytes of the frame."""
        return self.raw_bytes / self.bytes


class CutLayer(nn.Module):
    """A layer that encodes and decodes its input, as if it crossed the network.

    Forward gives `decode(encode(x))`. Backward is a straight-through estimator: the gradient passes as if the
    codec were the identity. With `down`, the gradient is encoded and decoded, too. In eval mode codecs are
    deterministic. `last_up` and `last_down` have bytes and error of the last batch.

        >>> layer = CutLayer(up=cutlayer.codec("ms:ratio=0.99,bits=2"))
        >>> model = nn.Sequential(client, layer, server)
    """

    def __init__(
        self,
        up: TensorCodec | None,
        down: TensorCodec | None = None,
        *,
        seed: int = 0,
        measure: bool = True,
    ) -> None:
        super().__init__()
        for name, codec in (("up", up), ("down", down)):
            if codec is not None and not hasattr(codec, "deterministic"):
                raise InputError(
                    f"CutLayer: {name} must be a codec or None, not {codec!r}; "
                    "make one with cutlayer.codec(...)"
                )
        self.up = up
        self.down = down
        self.seed = seed
        self.measure = measure
        # Counts forward passes in training mode; each has its own seed. Set it to resume a run exactly.
        self.calls = 0
        self.last_up: Crossing | None = None
        self.last_down: Crossing | None = None

    def forward(self, x: Tensor) -> Tensor:
        """The tensor as the other side decodes it."""
        call = self.calls
        if self.training:
            self.calls += 1
        result: Tensor = _StraightThrough.apply(x, self, call)  # type: ignore[no-untyped-call]
        return result

    def extra_repr(self) -> str:
        """The codecs, for print(model)."""
        return f"up={self.up}, down={self.down}"

    def cross(self, codec: TensorCodec | None, x: Tensor, number: int) -> tuple[Tensor, Crossing]:
        """Encode and decode one tensor, and measure its bytes and error."""
        raw = x.numel() * 4
        if codec is None:
            return x.view_as(x), Crossing(raw, raw, 0.0)
        form = codec if self.training else codec.deterministic()
        frame = form.encode(x, seed=mix(self.seed, number))
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        form.decode(frame, out=y)
        return y, Crossing(len(frame), raw, relative_error(x, y) if self.measure else None)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: CutLayer, call: int) -> Tensor:
        ctx.layer, ctx.call = layer, call
        y, layer.last_up = layer.cross(layer.up, x, 2 * call)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        layer: CutLayer = ctx.layer
        grad, layer.last_down = layer.cross(layer.down, grads[0], 2 * ctx.call + 1)
        return grad, None, None


def relative_error(x: Tensor, y: Tensor) -> float:
    """||x - y||^2 / ||x||^2; 0 if both are zero, infinite if only x is."""
    x, y = x.detach().float(), y.detach().float()
    lost = float(torch.linalg.vector_norm(x - y)) ** 2
    whole = float(torch.linalg.vector_norm(x)) ** 2
    return lost / whole if whole else (0.0 if lost == 0 else float("inf"))


def mix(seed: int, number: int) -> int:
    """A separate seed for each number (SplitMix64)."""
    z = (seed + (number + 1) * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return z ^ (z >> 31)
