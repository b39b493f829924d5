"""`CutLayer`: the cut as a layer, to train under compression in one process."""

import itertools
import weakref
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from cutlayer.errors import InputError, NonFiniteError, RangeError
from cutlayer.imports import import_by_name
from cutlayer.split.tensors import Tensors, lost_share, pulled, relative_error


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
    deterministic. `last_up` and `last_down` have bytes and error of the last batch. A dict of tensors, as it
    crosses a cut of several, is taken as well; integers in it pass as they are.

        >>> layer = CutLayer(up="ms:ratio=0.99,bits=2")
        >>> model = nn.Sequential(client, layer, server)

    It works under torch.compile, activation checkpointing (what is computed again is encoded with the same
    seed) and gradient scaling (a gradient that has overflowed passes as it is, and counts in `overflows`).
    """

    def __init__(
        self,
        up: TensorCodec | str | None,
        down: TensorCodec | str | None = None,
        *,
        seed: int = 0,
        measure: bool = True,
        commitment: float = 0.0,
    ) -> None:
        """`commitment`: the gradient g also pulls the input x towards what it decodes to, y: it becomes
        `g + commitment * |g| / |x| * (x - y)`."""
        super().__init__()
        if not 0 <= commitment <= _MOST_COMMITMENT:
            raise InputError(
                f"CutLayer: commitment must be from 0 to {_MOST_COMMITMENT}, not {commitment!r}; try 0.03"
            )
        self.commitment = commitment
        self.up = _codec("up", up)
        self.down = _codec("down", down)
        self.seed = seed
        self.measure = measure
        # Counts forward passes in training mode; each has its own seed. Set it to resume a run exactly.
        self.calls = 0
        self.overflows = 0
        """Gradients that could not be encoded because values were not finite, or too large for the codec."""
        self.last_up: Crossing | None = None
        self.last_down: Crossing | None = None
        self._recent: dict[Any, list[int]] = {}
        self._number = _register(self)

    def forward(self, x: Any) -> Any:
        """The tensor as the other side decodes it; of several by name, each."""
        if isinstance(x, dict):
            return self._several(x)
        if torch.compiler.is_compiling() or isinstance(x, FakeTensor):
            return torch.ops.cutlayer.cross(x, self._number)[0]
        return _StraightThrough.apply(x, self, self.next_call(x))  # type: ignore[no-untyped-call]

    def extra_repr(self) -> str:
        """The codecs, for print(model)."""
        return f"up={self.up}, down={self.down}"

    def next_call(self, x: Tensor) -> int:
        """The number of this forward pass; the same one, if activation checkpointing computes it again."""
        if not self.training:
            return self.calls
        if not (_draws(self.up) or _draws(self.down)):
            self.calls += not _in_backward()
            return self.calls - 1
        # Checkpointing restores the generator and computes the same input again.
        key = (tuple(x.shape), float(x.detach().sum()), torch.get_rng_state().numpy().tobytes())
        numbers = self._recent.setdefault(key, [])
        if _in_backward() and numbers:
            # Of equal passes the last is computed again first; a graph that is kept may need one twice.
            return numbers.pop() if len(numbers) > 1 else numbers[0]
        numbers.append(self.calls)
        while len(self._recent) > _REMEMBERED:
            self._recent.pop(next(iter(self._recent)))
        self.calls += 1
        return self.calls - 1

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

    def cross_back(self, gradient: Tensor, call: int) -> Tensor:
        """The gradient as the client decodes it. One that has overflowed passes: a scaler skips its step."""
        try:
            back, self.last_down = self.cross(self.down, gradient, 2 * call + 1)
        except (NonFiniteError, RangeError):
            self.overflows += 1
            return gradient
        return back

    def _several(self, x: dict[str, Tensor]) -> dict[str, Tensor]:
        found, crossed = dict(x), list[Crossing]()
        for name, tensor in x.items():
            if tensor.is_floating_point():
                found[name] = self.forward(tensor)
                if self.last_up is not None:
                    crossed.append(self.last_up)
        errors = [each.error for each in crossed if each.error is not None]
        sizes = [sum(each.bytes for each in crossed), sum(each.raw_bytes for each in crossed)]
        self.last_up = Crossing(sizes[0], sizes[1], max(errors) if errors else None)
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_number"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._number = _register(self)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: CutLayer, call: int) -> Tensor:
        ctx.layer, ctx.call = layer, call
        y, layer.last_up = layer.cross(layer.up, x, 2 * call)
        if layer.commitment:
            ctx.save_for_backward(_lost(x, y))
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        layer: CutLayer = ctx.layer
        back = layer.cross_back(grads[0], ctx.call)
        return (_pulled(back, ctx.saved_tensors[0], layer) if layer.commitment else back), None, None


# A compiled model calls the layer as an operator, which the compiler does not look into. An operator takes
# tensors and numbers only, so the layer is given by its number.
_LAYERS: weakref.WeakValueDictionary[int, CutLayer] = weakref.WeakValueDictionary()
_NUMBERS = itertools.count()
_MOST_COMMITMENT = 10
#: Forward passes of a random codec that can be computed again.
_REMEMBERED = 256


def _register(layer: CutLayer) -> int:
    number = next(_NUMBERS)
    _LAYERS[number] = layer
    return number


@torch.library.custom_op("cutlayer::cross", mutates_args=())
def _cross(x: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    found = _LAYERS[layer]
    call = found.next_call(x)
    y, found.last_up = found.cross(found.up, x, 2 * call)
    return (y if found.up is not None else x.clone().contiguous()), torch.tensor(call)


@_cross.register_fake
def _(x: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device), torch.empty((), dtype=torch.int64)


@torch.library.custom_op("cutlayer::cross_back", mutates_args=())
def _cross_back(gradient: Tensor, call: Tensor, layer: int) -> Tensor:
    back = _LAYERS[layer].cross_back(gradient, int(call))
    return back.clone().contiguous() if back.data_ptr() == gradient.data_ptr() else back


@_cross_back.register_fake
def _(gradient: Tensor, call: Tensor, layer: int) -> Tensor:
    return torch.empty(gradient.shape, dtype=gradient.dtype, device=gradient.device)


def _keep_call(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.layer = inputs[1]
    kept = [_lost(inputs[0], output[0])] if _LAYERS[ctx.layer].commitment else []
    ctx.save_for_backward(output[1], *kept)


def _back(ctx: Any, gradient: Tensor, _: Tensor | None) -> tuple[Tensor, None]:
    call, *lost = ctx.saved_tensors
    back: Tensor = torch.ops.cutlayer.cross_back(gradient, call, ctx.layer)
    return (_pulled(back, lost[0], _LAYERS[ctx.layer]) if lost else back), None


def _lost(x: Tensor, y: Tensor) -> Tensor:
    return _single(lost_share(x, y))


def _pulled(gradient: Tensor, lost: Tensor, layer: CutLayer) -> Tensor:
    return _single(pulled(gradient, lost, layer.commitment))


def _single(found: Tensors) -> Tensor:
    if not isinstance(found, Tensor):
        raise TypeError("one tensor gives one tensor")
    return found


_cross.register_autograd(_back, setup_context=_keep_call)


def _codec(name: str, given: TensorCodec | str | None) -> TensorCodec | None:
    if isinstance(given, str):
        # The public function, by name: this room knows no codecs.
        made: TensorCodec = import_by_name("cutlayer:codec", InputError)(given)
        return made
    if given is not None and not hasattr(given, "deterministic"):
        raise InputError(
            f"CutLayer: {name} must be a codec, a spec such as 'ms:ratio=0.99,bits=2' or None, not {given!r}"
        )
    return given


def _draws(codec: TensorCodec | None) -> bool:
    return codec is not None and codec.deterministic() != codec


def _in_backward() -> bool:
    """Whether autograd is at work, so that a forward pass is one that checkpointing computes again."""
    return torch._C._current_graph_task_id() != -1


def mix(seed: int, number: int) -> int:
    """A separate seed for each number (SplitMix64)."""
    z = (seed + (number + 1) * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return z ^ (z >> 31)
