"""Divide a traced model into parts: find the graph nodes before a cut, and the value that crosses it."""

import operator
from collections.abc import Iterable

import torch
from torch import fx, nn

from cutlayer.errors import CutError
from cutlayer.split.part import Part, assemble
from cutlayer.split.trace import Call, Trace, trace_around


def divide(model: nn.Module, end: str, start: str | None = None) -> list[Part]:
    """Divide a model behind the module `end` and, where given, in front of the module `start`."""
    names = [_canonical(model, name) for name in (end, start) if name is not None]
    traces = {mode: trace_around(model, names, training=mode) for mode in (True, False)}
    # A trace records a tensor that forward makes without its input as a constant: trace twice, and compare.
    again = [trace_around(model, names, training=m) for m, t in traces.items() if t.constants]
    constants = _steady_constants([*traces.values(), *again])
    graphs = {mode: _divide_graph(trace, names) for mode, trace in traces.items()}
    return assemble(model, graphs, constants)


def behind(trace: Trace, name: str) -> tuple[set[fx.Node], fx.Node]:
    """For a cut after a module: the nodes before the cut, and the one value that crosses it."""
    call = _only_call(trace, name)
    front = _nodes_to(trace, call.last)
    items = list(call.output.users) if call.output else []
    if not all(_is_item(item) for item in items):
        items = []
    front.update(items)  # `module(x)[0]`: indexing a tuple belongs to the part that made it
    crossing = _only_crossing(trace, front, f"behind '{name}'")
    if crossing not in [call.output, *items]:
        raise CutError(f"what '{name}' returns is not what the model goes on with.")
    if not _computes(node for node in trace.graph.nodes if node not in front):
        raise CutError(f"nothing comes after '{name}', so the part behind the cut would be empty.")
    return front, crossing


def before(trace: Trace, name: str) -> tuple[set[fx.Node], fx.Node]:
    """For a cut before a module: the nodes before the cut, and the one value that crosses it."""
    front = _nodes_to(trace, _only_call(trace, name).before)
    crossing = _only_crossing(trace, front, f"in front of '{name}'")
    if not _computes(front):
        raise CutError(f"nothing comes before '{name}', so the part in front would be empty.")
    return front, crossing


def _divide_graph(trace: Trace, names: list[str]) -> list[fx.Graph]:
    cuts = [behind(trace, names[0]), *(before(trace, name) for name in names[1:])]
    if len(cuts) == 2 and not cuts[0][0] <= cuts[1][0]:
        raise CutError(f"the tail would begin with '{names[1]}' before the head ends.")
    fronts = [front for front, _ in cuts]
    crossings = [crossing for _, crossing in cuts]
    graphs = []
    done: set[fx.Node] = set()
    nodes = list(trace.graph.nodes)
    for front, fed, handed in zip([*fronts, set(nodes)], [None, *crossings], [*crossings, None], strict=True):
        ahead = front - done
        mine = [node for node in nodes if node in ahead]
        if not _computes(mine):
            raise CutError(f"nothing lies between '{names[0]}' and '{names[-1]}' for the server.")
        graphs.append(_extract(mine, fed, handed))
        done |= front
    return graphs


def _extract(nodes: list[fx.Node], fed: fx.Node | None, handed: fx.Node | None) -> fx.Graph:
    """Copy nodes into a graph of their own that takes `fed` and returns `handed`."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    if fed is not None:
        copies[fed] = graph.placeholder("smashed")

    def copy_of(node: fx.Node) -> fx.Node:
        # A parameter goes to the part that reads it, wherever the trace found it first.
        if node not in copies and node.op == "get_attr":
            copies[node] = graph.node_copy(node)
        return copies[node]

    for node in nodes:
        if node.op == "output":
            graph.output(fx.node.map_arg(node.args[0], copy_of))
        elif node.op != "get_attr":
            copies[node] = graph.node_copy(node, copy_of)
    if handed is not None:
        graph.output(copies[handed])
    return graph


def _canonical(model: nn.Module, name: str) -> str:
    modules = dict(model.named_modules(remove_duplicate=False))
    if not name or name not in modules:
        raise CutError(f"{type(model).__name__} has no module '{name}'.")
    # A module registered under two names is traced under the first.
    first: str = next(n for n, module in model.named_modules() if module is modules[name])
    return first


def _only_call(trace: Trace, name: str) -> Call:
    calls = trace.calls.get(name, [])
    if len(calls) != 1:
        times = f"is called {len(calls)} times in" if calls else "is never called by"
        raise CutError(f"'{name}' {times} the forward pass; a cut needs exactly one call.")
    return calls[0]


def _nodes_to(trace: Trace, last: fx.Node) -> set[fx.Node]:
    nodes = list(trace.graph.nodes)
    return set(nodes[: nodes.index(last) + 1])


def _only_crossing(trace: Trace, front: set[fx.Node], where: str) -> fx.Node:
    crossing: list[fx.Node] = [
        node
        for node in trace.graph.nodes
        # Parameters do not cross: the part that reads them has them.
        if node in front and node.op != "get_attr" and not node.users.keys() <= front
    ]
    if len(crossing) != 1:
        what = ", ".join(_describe(node) for node in crossing)
        detail = f" ({what})" if what else ""
        raise CutError(f"{len(crossing)} values cross a cut {where}{detail}, but exactly one tensor may.")
    return crossing[0]


def _describe(node: fx.Node) -> str:
    kinds = {
        "call_module": f"the output of '{node.target}'",
        "placeholder": f"the model's input {node.target}",
    }
    return kinds.get(node.op, f"the result of {node.name}")


def _computes(nodes: Iterable[fx.Node]) -> bool:
    return any(node.op.startswith("call_") for node in nodes)


def _is_item(node: fx.Node) -> bool:
    return node.target is operator.getitem and isinstance(node.args[1], int)


def _steady_constants(traces: list[Trace]) -> dict[str, torch.Tensor]:
    steady: dict[str, torch.Tensor] = {}
    for trace in traces:
        for name, tensor in trace.constants.items():
            known = steady.setdefault(name, tensor)
            if known.dtype != tensor.dtype or not torch.equal(known, tensor):
                raise CutError(
                    "forward makes a tensor that is not always the same (random, or by mode), "
                    "which a trace would freeze. Make it in a module of its own, or from the "
                    "input, as with torch.randn_like."
                )
    return steady
