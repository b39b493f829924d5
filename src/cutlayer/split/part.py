"""`Part`: a part of a cut model as a module, and `Program`: its forward pass as a compiled torch.fx graph.

A part has its parameters and buffers under their original names. Both can be copied and pickled.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.fx.node import map_aggregate, map_arg
from torch.utils import _pytree as pytree

from cutlayer.errors import CutError, ModelError
from cutlayer.split.tracing.sizes import SizeCheck


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


class Part(nn.Module):
    """One part of a cut model.

    It shares parameters, buffers and modules with the whole model: training it trains the whole
    model, and setting its mode sets that of the shared modules. The reverse does not hold: call
    `train()` and `eval()` on the parts. A deep copy shares nothing. A part can be pickled.

    The first part takes what the model takes, by position or by keyword. If one tensor crosses a cut, the
    part before it returns that tensor; if several cross, it returns a dict of them by name. The part behind
    the cut takes the same, or the tensors as keywords.
    """

    def __init__(
        self,
        programs: dict[bool, Program],
        *,
        first: bool,
        last: bool,
        check: SizeCheck | None = None,
        fixed: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._cut_programs = programs
        self._cut_first = first
        self._cut_last = last
        self._cut_check = check if first else None
        self._cut_fixed = (fixed or {}) if first else {}

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the tensors that it takes, in order."""
        return self._cut_programs[False].inputs

    def input_nodes(self) -> list[fx.Node]:
        """Where the tensors that it takes in training enter its graph."""
        return [node for node in self._cut_programs[True].graph.nodes if node.op == "placeholder"]

    def called_modules(self) -> list[nn.Module]:
        """The modules that its forward pass calls, each as a whole."""
        nodes = [node for program in self._cut_programs.values() for node in program.graph.nodes]
        names = dict.fromkeys(str(node.target) for node in nodes if node.op == "call_module")
        return [self.get_submodule(name) for name in names]

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Compute what the whole model computes between this part's ends."""
        # `self.training` in a traced forward is fixed when it is traced: one graph for each mode.
        program = self._cut_programs[self.training]
        if named or len(inputs) != len(program.inputs) or isinstance(inputs[0], dict):
            inputs = self._in_order(inputs, named)
        if not self._cut_first:
            inputs = tuple(_writable(x) for x in inputs)
        if self._cut_check is not None:
            self._cut_check(inputs)
        try:
            output = program(self, *inputs)
        except ValueError as error:
            # PyTorch raises a plain ValueError, so it is recognised by its message.
            if "more than 1 value per channel" not in str(error):
                raise
            raise ModelError(
                "batch norm cannot train on a single value a channel, and a batch of one sample came to it. "
                "Let no batch have only one sample: drop the last, partial one (--set train.drop_last=true) "
                "or change the batch size"
            ) from error
        if not self._cut_last:
            _check_crossing(output)
        return output

    def _in_order(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        names = self.inputs
        if len(inputs) == 1 and isinstance(inputs[0], dict) and not named:
            named, inputs = inputs[0], ()
        # A keyword that is None, or as it was when the model was cut, says nothing.
        given = {n: x for n, x in named.items() if x is not None and not _same(self._cut_fixed.get(n), x)}
        given = {**dict(zip(names, inputs, strict=False)), **given}
        if given.keys() != set(names) or len(inputs) > len(names):
            found = ", ".join([*given, *(["more"] if len(inputs) > len(names) else [])])
            advice = " To call it otherwise, cut the model with an example of that call." * self._cut_first
            raise CutError(f"this part takes {', '.join(names)}; it got {found or 'nothing'}.{advice}")
        return tuple(given[name] for name in names)


def _same(fixed: Any, given: Any) -> bool:
    return not isinstance(given, torch.Tensor) and fixed is not None and bool(fixed == given)


def _writable(x: Any) -> Any:
    # The part may begin with an in-place operation. Autograd refuses to write into a leaf, such as a decoded
    # tensor, and in one process the sender may still need its own.
    return x.clone() if isinstance(x, torch.Tensor) and x.is_leaf else x


def _check_crossing(output: Any) -> None:
    # While a part is itself being cut, a torch.fx proxy takes the place of the tensor.
    for value in output.values() if isinstance(output, dict) else (output,):
        if not isinstance(value, (torch.Tensor, fx.Proxy)):
            raise CutError(
                f"what crosses the cut must be one tensor, but it is a {type(value).__name__}. "
                "Cut behind the module that makes a tensor of it."
            )


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
