"""Divide a traced model into parts: find the graph nodes before a cut, and the values that cross it."""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from cutlayer.errors import CutError
from cutlayer.split.assemble import assemble
from cutlayer.split.extract import extract
from cutlayer.split.part import Part, Program
from cutlayer.split.recompute import asks_size, cheaper_sources, is_data, is_size, made_of_data
from cutlayer.split.tracing.examples import Example, example_of, transformers_example
from cutlayer.split.tracing.symbolic import Call, Trace, trace_around


@dataclass(frozen=True)
class Crossing:
    """A cut through a graph: the nodes before it, and those whose values cross it."""

    front: set[fx.Node]
    values: list[fx.Node]


def divide(model: nn.Module, at: Sequence[str], example: Any = None) -> list[Part]:
    """Divide a model behind the first module named and, where two are, in front of the second."""
    if isinstance(model, torch.jit.ScriptModule) or hasattr(model, "_orig_mod"):
        raise CutError(
            "a model that torch.compile or torch.jit has made cannot be cut. Cut the model that it was made "
            "of, and compile its parts."
        )
    names = [_canonical(model, name) for name in at]
    given = transformers_example(model) if example is None else example_of(model, example)
    if given is None or (given.positional and transformers_example(model) is None):
        try:
            return _by_symbols(model, names)
        except CutError:
            if given is None:
                raise
    return _by_example(model, names, given)


def _by_symbols(model: nn.Module, names: list[str]) -> list[Part]:
    traces = {mode: trace_around(model, names, training=mode) for mode in (True, False)}
    # A trace records a tensor that forward makes without its input as a constant: trace twice, and compare.
    again = [trace_around(model, names, training=m) for m, t in traces.items() if t.constants]
    constants = _steady_constants([*traces.values(), *again])
    return assemble(model, _programs(traces, names), constants)


def _by_example(model: nn.Module, names: list[str], example: Example) -> list[Part]:
    # Imported only here: what computes with symbolic sizes takes long to import.
    from cutlayer.split.tracing.by_example import trace_by_example
    from cutlayer.split.tracing.verify import verify

    traces = {mode: trace_by_example(model, names, example, training=mode) for mode in (True, False)}
    constants = _steady_constants(list(traces.values()))
    parts = assemble(model, _programs(traces, names), constants, traces[False].check, example.fixed)
    verify(model, parts, example)
    return parts


def behind(trace: Trace, name: str) -> Crossing:
    """A cut after a module."""
    call = _only_call(trace, name)
    front = _nodes_to(trace, call.last)
    items = list(call.output.users) if call.output else []
    if not all(_is_item(item) for item in items):
        items = []
    front.update(items)  # `module(x)[0]`: indexing a tuple belongs to the part that made it
    front |= made_of_data(trace, front)
    crossing = _crossing(trace, front, f"behind '{name}'")
    made = {call.output, *items, *(n for n in front if _item_of(n, name))}
    if not made & set(crossing):
        raise CutError(f"what '{name}' returns is not what the model goes on with.")
    if not _computes(node for node in trace.graph.nodes if node not in front):
        raise CutError(f"nothing comes after '{name}', so the part behind the cut would be empty.")
    _refuse_data(trace, front, crossing, f"behind '{name}'")
    return Crossing(front, crossing)


def before(trace: Trace, name: str) -> Crossing:
    """A cut before a module."""
    front = _nodes_to(trace, _only_call(trace, name).before)
    front |= made_of_data(trace, front)
    crossing = _crossing(trace, front, f"in front of '{name}'")
    if not _computes(front):
        raise CutError(f"nothing comes before '{name}', so the part in front would be empty.")
    _refuse_data(trace, front, crossing, f"in front of '{name}'")
    return Crossing(front, crossing)


def tensor_names(values: list[fx.Node]) -> list[str]:
    """A name for each value that crosses: of the module or function that gave it, or of the model's input."""
    names: list[str] = []
    for node in values:
        source = node
        while _is_item(source) and isinstance(source.args[0], fx.Node):
            source = source.args[0]
        name = source.name if source.op == "call_module" else node.name
        names.append(name if name not in names else node.name)
    return names


def _programs(traces: dict[bool, Trace], names: list[str]) -> dict[bool, list[Program]]:
    found = {mode: _cuts(trace, names) for mode, trace in traces.items()}
    # Both modes send the same tensors under the same names.
    labels = [tensor_names(cut.values) for cut in found[False]]
    if [len(cut.values) for cut in found[True]] != [len(label) for label in labels]:
        raise CutError("other tensors cross the cut in training than in evaluation; cut elsewhere.")
    return {mode: _divide_graph(traces[mode], cuts, labels, names) for mode, cuts in found.items()}


def _cuts(trace: Trace, names: list[str]) -> list[Crossing]:
    cuts = [behind(trace, names[0]), *(before(trace, name) for name in names[1:])]
    if len(cuts) == 2 and not cuts[0].front <= cuts[1].front:
        raise CutError(f"the tail would begin with '{names[1]}' before the head ends.")
    return cuts


def _divide_graph(
    trace: Trace, cuts: list[Crossing], labels: list[list[str]], names: list[str]
) -> list[Program]:
    programs = []
    done: set[fx.Node] = set()
    nodes = list(trace.graph.nodes)
    ways = [dict(zip(label, cut.values, strict=True)) for label, cut in zip(labels, cuts, strict=True)]
    fronts = [*(cut.front for cut in cuts), set(nodes)]
    for front, fed, handed in zip(fronts, [None, *ways], [*ways, None], strict=True):
        ahead = front - done
        mine = [node for node in nodes if node in ahead]
        if not _computes(mine):
            raise CutError(f"nothing lies between '{names[0]}' and '{names[-1]}' for the server.")
        graph = extract(mine, fed, handed, tidy=trace.check is not None)
        programs.append(Program(graph, trace.form if handed is None else None))
        done |= front
    return programs


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


def _crossing(trace: Trace, front: set[fx.Node], where: str) -> list[fx.Node]:
    found: list[fx.Node] = [
        node
        for node in trace.graph.nodes
        # Parameters do not cross: the part that reads them has them. Nor do sizes.
        if node in front
        and node.op != "get_attr"
        and not is_size(node)
        and any(user not in front and not is_size(user) for user in node.users)
    ]
    if trace.check is not None:
        found = cheaper_sources(trace, front, found)
    asked = [node for node in found if asks_size(node)]
    if asked:
        raise CutError(
            f"the size {asked[0].name} is asked for on one side of a cut {where} and needed on the other. "
            "Ask for it where it is needed, or give cut an example of the model's input."
        )
    if not found:
        raise CutError(f"no value crosses a cut {where}.")
    return found


def _refuse_data(trace: Trace, front: set[fx.Node], crossing: list[fx.Node], where: str) -> None:
    leak = next((node for node in crossing if is_data(trace, front, node)), None)
    if leak is not None:
        what = f"input {leak.target}" if leak.op == "placeholder" else f"{leak.name}, made of data,"
        raise CutError(
            f"the model's {what} itself would cross a cut {where}: data would leave the client before any of "
            "its layers. Cut where it is not needed any more, or let a layer of the client stand between it "
            "and its later use. If it is a mask, give cut an example of the inputs, so that it is known."
        )


def _computes(nodes: Iterable[fx.Node]) -> bool:
    return any(node.op.startswith("call_") and not is_size(node) for node in nodes)


def _is_item(node: fx.Node) -> bool:
    return node.target is operator.getitem and isinstance(node.args[1], (int, str))


def _item_of(node: fx.Node, name: str) -> bool:
    while _is_item(node) and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node.op == "call_module" and node.target == name


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
