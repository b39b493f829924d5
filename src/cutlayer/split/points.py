"""`cut_points`: the valid cuts of a model, with shapes, parameters and multiply-adds on each side."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from cutlayer.errors import CutError
from cutlayer.split.divide import before, behind, divide
from cutlayer.split.part import assemble
from cutlayer.split.trace import Trace, set_mode, trace_all, unchanged


@dataclass(frozen=True)
class CutPoint:
    """A valid cut: its name, the tensor that crosses it, and the work on each side of it.

    Shapes and multiply-adds are for one sample. Multiply-adds are those of matrix products,
    convolutions and attention; additions, activations and norms are not counted.
    """

    name: str
    shape: tuple[int, ...]
    client_parameters: int
    server_parameters: int
    client_madds: int
    server_madds: int

    @property
    def elements(self) -> int:
        """Elements a sample of the tensor that crosses."""
        return math.prod(self.shape)

    @property
    def raw_bytes(self) -> int:
        """Bytes a sample of that tensor as plain float32."""
        return 4 * self.elements


def cut_points(model: nn.Module, example: torch.Tensor | tuple[torch.Tensor, ...]) -> list[CutPoint]:
    """List every valid cut of a model in the order of its forward pass.

    The example is a batch of any size that the model can take (a tuple for several inputs). Where
    several names mean the same cut (`layer1`, `layer1.1`), the outermost one is listed.

    >>> for point in cut_points(model, torch.zeros(1, 3, 32, 32)):
    ...     print(point.name, point.shape, point.raw_bytes)
    """
    inputs = example if isinstance(example, tuple) else (example,)
    trace = trace_all(model)
    meter = _measure(model, trace, inputs)
    batch = inputs[0].shape[0]
    points = []
    for name in _outermost(trace, behind):
        front, crossing = behind(trace, name)
        value = meter.values[crossing]
        parts = _try_divide(model, name)
        # A codec carries floating-point values and may treat each sample alone.
        if parts is None or value is None or value.dim() == 0 or value.shape[0] != batch:
            continue
        if not value.is_floating_point():
            continue
        flops = max(meter.flops[node] for node in front)
        client, server = (sum(p.numel() for p in part.parameters()) for part in parts)
        points.append(
            CutPoint(
                name=name,
                shape=tuple(value.shape[1:]),
                client_parameters=client,
                server_parameters=server,
                client_madds=flops // (2 * batch),
                server_madds=(meter.total - flops) // (2 * batch),
            )
        )
    return points


def valid_ends(model: nn.Module) -> list[str]:
    """Modules that a client part can end with: the valid values of `at` in `cut(model, at=...)`."""
    return [name for name in _outermost(trace_all(model), behind) if _try_divide(model, name)]


def valid_starts(model: nn.Module) -> list[str]:
    """Modules that the tail of a U-shaped cut can begin with."""
    return _outermost(trace_all(model), before)


_Side = Callable[[Trace, str], tuple[set[fx.Node], fx.Node]]


def _outermost(trace: Trace, side: _Side) -> list[str]:
    """One name for each valid cut, that of the outermost module, in the order of the forward pass."""
    found: list[tuple[int, int, str]] = []
    order = {name: i for i, name in enumerate(trace.calls)}
    for name in sorted(trace.calls, key=lambda name: name.count(".")):
        try:
            front, _ = side(trace, name)
        except CutError:
            continue
        size = len(front)
        # The last module in a container makes the same cut as the container.
        if not any(size == other and name.startswith(f"{n}.") for other, _, n in found):
            found.append((size, order[name], name))
    return [name for _, _, name in sorted(found)]


def _try_divide(model: nn.Module, name: str) -> list[Any] | None:
    try:
        return list(divide(model, name))
    except CutError:
        return None


class _Meter(fx.Interpreter):
    """Runs a graph; records the shape of each node's tensor, and the FLOPs up to that node."""

    def __init__(self, module: nn.Module, graph: fx.Graph, counter: FlopCounterMode) -> None:
        super().__init__(module, graph=graph)
        self.flops: dict[fx.Node, int] = {}
        self.values: dict[fx.Node, torch.Tensor | None] = {}
        self.total = 0
        self._counter = counter

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        self.total = self.flops[n] = self._counter.get_total_flops()
        # A meta tensor has shape and dtype, but no memory.
        self.values[n] = value.to("meta") if isinstance(value, torch.Tensor) else None
        return value


def _measure(model: nn.Module, trace: Trace, inputs: tuple[torch.Tensor, ...]) -> _Meter:
    fast_attention = torch.backends.mha.get_fastpath_enabled()
    # The FLOP counter does not know every fused attention kernel, but it knows the matrix products of the
    # plain one.
    torch.backends.mha.set_fastpath_enabled(False)
    plain_attention = sdpa_kernel(SDPBackend.MATH)
    counter = FlopCounterMode(display=False)
    try:
        with unchanged(model), torch.no_grad(), plain_attention, counter:
            set_mode(model, False)
            graphs = {mode: [trace.graph] for mode in (True, False)}
            (whole,) = assemble(model, graphs, trace.constants)
            meter = _Meter(whole, trace.graph, counter)
            meter.run(*inputs)
    except (RuntimeError, ValueError, TypeError) as error:
        shapes = ", ".join(str(tuple(x.shape)) for x in inputs)
        raise CutError(f"the model does not run on an example of shape {shapes}: {error}") from error
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_attention)
    return meter
