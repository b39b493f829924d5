"""`Program`: the forward pass of a part as a compiled torch.fx graph that can be copied and pickled."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx, nn
from torch.fx.node import map_aggregate, map_arg
from torch.utils import _pytree as pytree


class Program:
    """One graph, compiled when it is first run. It holds no weights: these are in the part that runs it.

    Copies of a part share their programs. A pickled program is its graph, and compiled again on arrival.
    """

    def __init__(self, graph: fx.Graph, form: Any = None) -> None:
        """`form` is how the graph's list of outputs is put together again, such as to a ModelOutput."""
        self.graph = graph
        self.form = form
        self.inputs: tuple[str, ...] = tuple(str(n.target) for n in graph.nodes if n.op == "placeholder")
        self._forward: Callable[..., Any] | None = None

    def __call__(self, part: nn.Module, *inputs: Any) -> Any:
        """Run the graph with the part's weights."""
        forward = self._forward or self.compile(part)
        found = forward(part, *inputs)
        return found if self.form is None else pytree.tree_unflatten(found, self.form)

    def compile(self, part: nn.Module) -> Callable[..., Any]:
        """The function that the graph describes."""
        # Only the generated function is kept. A GraphModule would make plain tensors and non-persistent
        # buffers persistent, and would drop unused state on deepcopy.
        made: Callable[..., Any] = type(fx.GraphModule(part, copy.deepcopy(self.graph))).forward
        self._forward = made
        return made

    def source(self) -> str:
        """The graph as Python code."""
        return self.graph.python_code("self").src

    def __deepcopy__(self, memo: dict[int, Any]) -> Program:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # The form as an object of that form, whose leaves are numbers: PyTorch's own description of it has
        # no stable way to be pickled.
        form = self.form
        shape = None if form is None else pytree.tree_unflatten(range(form.num_leaves), form)
        return _read, (_write(self.graph), shape)


@dataclass(frozen=True)
class _Reference:
    """Stands for the result of the node at that place."""

    place: int


@dataclass(frozen=True)
class _Function:
    """A function by where it is found, such as max_pool2d in torch.nn.functional."""

    module: str
    name: str


def _write(graph: fx.Graph) -> list[tuple[Any, ...]]:
    """A graph as plain data."""
    place = {node: i for i, node in enumerate(graph.nodes)}

    def refer(node: fx.Node) -> Any:
        return _Reference(place[node])

    return [
        (n.op, _name_of(n.target), map_arg(n.args, refer), map_arg(n.kwargs, refer), n.name)
        for n in graph.nodes
    ]


def _read(nodes: list[tuple[Any, ...]], shape: Any) -> Program:
    """The program of a graph that `_write` gave."""
    form = None if shape is None else pytree.tree_structure(shape)
    graph, made = fx.Graph(), list[fx.Node]()

    def resolve(value: Any) -> Any:
        return made[value.place] if isinstance(value, _Reference) else value

    for op, target, args, kwargs, name in nodes:
        if isinstance(target, _Function):
            target = getattr(importlib.import_module(target.module), target.name)
        args, kwargs = map_aggregate(args, resolve), map_aggregate(kwargs, resolve)
        made.append(graph.create_node(op, target, args, kwargs, name=name))
    return Program(graph, form)


def _name_of(target: Any) -> Any:
    # Some functions of PyTorch are made inside of another one, so that pickle does not find them.
    if "<locals>" in getattr(target, "__qualname__", ""):
        return _Function(target.__module__, target.__name__)
    return target
