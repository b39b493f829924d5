"""`cut_points`: the valid cuts of a model, with shapes, parameters and multiply-adds on each side."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from cutlayer.errors import CutError
from cutlayer.split.assemble import assemble
from cutlayer.split.divide import Crossing, before, behind, divide, tensor_names
from cutlayer.split.part import Program
from cutlayer.split.tracing.examples import Example, example_of, transformers_example
from cutlayer.split.tracing.symbolic import Trace, set_mode, trace_all, unchanged


@dataclass(frozen=True)
class CutTensor:
    """A tensor that crosses a cut. The shape is that of one sample."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32

    @property
    def elements(self) -> int:
        """Elements a sample."""
        return math.prod(self.shape)

    @property
    def raw_bytes(self) -> int:
        """Bytes a sample: floats as float32, others as they are."""
        return self.elements * (4 if self.dtype.is_floating_point else self.dtype.itemsize)


@dataclass(frozen=True)
class CutPoint:
    """A valid cut: its name, the tensors that cross it, and the work on each side of it.

    Shapes and multiply-adds are for one sample. Multiply-adds are those of matrix products,
    convolutions and attention; additions, activations and norms are not counted.
    """

    name: str
    shape: tuple[int, ...]
    """Of what the module of that name returns."""
    client_parameters: int
    server_parameters: int
    client_madds: int
    server_madds: int
    others: tuple[CutTensor, ...] = ()
    """What crosses beside it: skip connections, masks."""

    @property
    def elements(self) -> int:
        """Elements a sample of all that crosses."""
        return math.prod(self.shape) + sum(tensor.elements for tensor in self.others)

    @property
    def raw_bytes(self) -> int:
        """Bytes a sample of all that crosses, floats as plain float32."""
        return 4 * math.prod(self.shape) + sum(tensor.raw_bytes for tensor in self.others)


def cut_points(model: nn.Module, example: Any = None) -> list[CutPoint]:
    """List every valid cut of a model in the order of its forward pass.

    The example is a batch of any size that the model can take: a tensor, a tuple for several inputs, or a
    dict of keywords; a model of the transformers package needs none. Where several names mean the same cut
    (`layer1`, `layer1.1`), the outermost one is listed, and cuts of several tensors inside of a module only
    if there is no cut behind that module.

    >>> for point in cut_points(model, torch.zeros(1, 3, 32, 32)):
    ...     print(point.name, point.shape, point.raw_bytes)
    """
    given = transformers_example(model) if example is None else example_of(model, example)
    if given is None:
        raise CutError("give an example of the model's input")
    trace = _trace(model, given)
    inputs = tuple(given.tensors.values())
    meter = _measure(model, trace, inputs)
    batch = inputs[0].shape[0]
    points = []
    for name in _outermost(trace, behind):
        crossing = behind(trace, name)
        names, counts = _sides(model, trace, name, crossing, given)
        tensors = None if counts is None else _tensors(crossing, names, meter, batch)
        if counts is None or tensors is None:
            continue
        main = next((t for t in tensors if t.name == name.replace(".", "_")), tensors[0])
        flops = max(meter.flops[node] for node in crossing.front)
        points.append(
            CutPoint(
                name=name,
                shape=main.shape,
                client_parameters=counts[0],
                server_parameters=counts[1],
                client_madds=flops // (2 * batch),
                server_madds=(meter.total - flops) // (2 * batch),
                others=tuple(t for t in tensors if t is not main),
            )
        )
    return points


def valid_cuts(model: nn.Module, example: Any = None) -> tuple[list[str], list[str]]:
    """Modules that a client part can end with, and those that the tail of a U-shape can begin with."""
    given = transformers_example(model) if example is None else example_of(model, example)
    trace = _trace(model, given)
    ends = [n for n in _outermost(trace, behind) if _sides(model, trace, n, behind(trace, n), given)[1]]
    return ends, _outermost(trace, before)


def _trace(model: nn.Module, given: Example | None) -> Trace:
    if given is None:
        return trace_all(model)
    masked = any(not tensor.is_floating_point() for tensor in list(given.tensors.values())[1:])
    if given.positional and not masked and transformers_example(model) is None:
        try:
            return trace_all(model)
        except CutError:
            pass
    from cutlayer.split.tracing.by_example import trace_blocks_by_example  # takes long to import

    return trace_blocks_by_example(model, given)


def _tensors(
    crossing: Crossing, names: tuple[str, ...], meter: "_Meter", batch: int
) -> list[CutTensor] | None:
    """What crosses; None if it is not what can be sent: at least one float, the samples in front of each."""
    found = []
    # Those of the parts; this trace goes into modules that the parts call whole.
    if len(names) != len(crossing.values) or len(names) == 1:
        names = tuple(tensor_names(crossing.values))
    for name, node in zip(names, crossing.values, strict=True):
        value = meter.values[node]
        if value is None or value.dim() == 0 or value.shape[0] != batch:
            return None
        found.append(CutTensor(name, tuple(value.shape[1:]), value.dtype))
    return found if any(tensor.dtype.is_floating_point for tensor in found) else None


_Side = Callable[[Trace, str], Crossing]


def _outermost(trace: Trace, side: _Side) -> list[str]:
    """One name for each valid cut, that of the outermost module, in the order of the forward pass."""
    found: list[tuple[int, int, str]] = []
    order = {name: i for i, name in enumerate(trace.calls)}
    for name in sorted(trace.calls, key=lambda name: name.count(".")):
        try:
            crossing = side(trace, name)
        except CutError:
            continue
        size = len(crossing.front)
        inside = [other for other, _, n in found if name.startswith(f"{n}.")]
        # The last module in a container makes the same cut as the container. Where one can cut behind a
        # block, several tensors inside of it are of no interest.
        if size not in inside and not (inside and len(crossing.values) > 1):
            found.append((size, order[name], name))
    return [name for _, _, name in sorted(found)]


def _sides(
    model: nn.Module, trace: Trace, name: str, crossing: Crossing, given: Example | None
) -> tuple[tuple[str, ...], tuple[int, int] | None]:
    """The names of what crosses a cut, and how many parameters are on each side; None if it is not valid."""
    if trace.check is None:
        try:
            client, server = divide(model, [name], given)
        except CutError:
            return (), None
        first, second = (sum(p.numel() for p in part.parameters()) for part in (client, server))
        return server.inputs, (first, second)
    # Each division would trace the model anew, which takes long by example. This trace calls the blocks
    # whole, as the parts do.
    behind_it = (node for node in trace.graph.nodes if node not in crossing.front)
    sides = [_weights(model, nodes) for nodes in (crossing.front, behind_it)]
    if sides[0].keys() & sides[1].keys():
        return (), None
    front = sum(sides[0].values())
    return (), (front, sum(p.numel() for p in model.parameters()) - front)


def _weights(model: nn.Module, nodes: Iterable[fx.Node]) -> dict[int, int]:
    """The elements of each parameter that nodes read, by identity."""
    found: dict[int, int] = {}
    for node in nodes:
        if node.op == "call_module":
            found |= {id(p): p.numel() for p in model.get_submodule(str(node.target)).parameters()}
        elif node.op == "get_attr" and not str(node.target).startswith("_cut_constant"):
            holder, _, name = str(node.target).rpartition(".")
            value = getattr(model.get_submodule(holder), name)
            found |= {id(value): value.numel()} if isinstance(value, nn.Parameter) else {}
    return found


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
            program = Program(trace.graph, trace.form)
            (whole,) = assemble(model, {True: [program], False: [program]}, trace.constants)
            meter = _Meter(whole, trace.graph, counter)
            meter.run(*inputs)
    except (RuntimeError, ValueError, TypeError) as error:
        shapes = ", ".join(str(tuple(x.shape)) for x in inputs)
        raise CutError(f"the model does not run on an example of shape {shapes}: {error}") from error
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_attention)
    return meter
