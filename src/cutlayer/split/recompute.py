"""What need not cross a cut: values that the other side computes itself, from sizes or cheaper values.

Position numbers, causal masks and other tensors made of sizes alone are made where they are needed. A mask
over all pairs of tokens, made of the model's attention mask, is made again from that mask, which is smaller.
This is known only of models that were traced by running them on an example (`cutlayer.split.tracing`).
"""

from collections.abc import Iterable, Sequence

import torch
from torch import fx

from cutlayer.split.tracing.symbolic import Trace

_RANDOM = (
    "rand",
    "dropout",
    "bernoulli",
    "multinomial",
    "normal",
    "uniform",
    "poisson",
    "exponential",
    "gumbel",
)


def is_size(node: fx.Node) -> bool:
    """Whether a node computes a size, which the other side knows from the shapes of what it gets."""
    return "size" in node.meta or "part_of_size" in node.meta


def cheaper_sources(trace: Trace, front: set[fx.Node], crossing: Sequence[fx.Node]) -> list[fx.Node]:
    """The values that cross if those that can be are computed behind the cut, in the order of the graph.

    What is sent instead is an input of the model that is no data, or a boolean tensor, and is smaller.
    """
    computed, data = _sources(trace), data_inputs(trace, front)
    cheapest: dict[fx.Node, frozenset[fx.Node] | None] = {}
    for node in trace.graph.nodes:
        if not computed[node]:  # it cannot be computed, or it is made of sizes alone
            cheapest[node] = computed[node]
            continue
        back = [cheapest[argument] for argument in node.all_input_nodes]
        further = None if None in back else frozenset().union(*(b for b in back if b is not None))
        if node.op == "placeholder":
            cheapest[node] = None if node in data else frozenset({node})
        elif further is not None and (node.meta.get("dtype") is None or _cost(further) <= _cost([node])):
            cheapest[node] = further
        else:
            cheapest[node] = frozenset({node}) if node.meta.get("dtype") is torch.bool else further
    sent: set[fx.Node] = set()
    for node in crossing:
        instead = cheapest[node]
        if instead is None or (node.op != "placeholder" and _cost(instead) > _cost([node])):
            sent.add(node)
        else:
            sent |= instead
    return [node for node in trace.graph.nodes if node in sent]


def can_be_made(node: fx.Node) -> bool:
    """Whether a node's operation gives the same wherever and however often it runs."""
    if node.op == "get_attr":
        return True
    name = str(getattr(node.target, "__name__", node.target))
    return node.op == "call_function" and not node.meta.get("mutates") and not any(r in name for r in _RANDOM)


def _cost(nodes: Iterable[fx.Node]) -> int:
    """Bits on the wire, about: integers are mostly masks."""
    floats = ((int(node.meta["elements"]), node.meta["dtype"].is_floating_point) for node in nodes)
    return sum(elements * (32 if floating else 1) for elements, floating in floats)


def _sources(trace: Trace) -> dict[fx.Node, frozenset[fx.Node] | None]:
    """For each node the inputs of the model that it can be computed from alone; None if it cannot."""
    changed = {
        argument.meta.get("storage")
        for node in trace.graph.nodes
        if node.meta.get("mutates")
        for argument in (*node.all_input_nodes[:1], node)
    }
    found: dict[fx.Node, frozenset[fx.Node] | None] = {}
    for node in trace.graph.nodes:
        if node.op == "placeholder":
            found[node] = frozenset({node})
        elif is_size(node):
            found[node] = frozenset()
        elif node.op == "get_attr":
            found[node] = frozenset() if node.meta.get("unsaved") else None
        elif node.op == "output" or not can_be_made(node) or node.meta.get("storage", 0) in changed:
            found[node] = None
        else:
            known = [found[argument] for argument in node.all_input_nodes]
            found[node] = None if None in known else frozenset().union(*(k for k in known if k is not None))
    return found


def data_inputs(trace: Trace, front: set[fx.Node]) -> set[fx.Node]:
    """Inputs of the model that are the client's data and must not travel as they are.

    Those are floats, and integers to which the client's weights are applied: such an input, or what is made
    of it by reshaping, is the first argument of a module in front of the cut. Masks and the like come behind
    it, or come as booleans. A symbolic trace knows no types, and takes all inputs for data.
    """
    inputs = {node for node in trace.graph.nodes if node.op == "placeholder"}
    if trace.check is None:
        return inputs
    found = {node for node in inputs if node.meta["dtype"].is_floating_point}
    sources = _sources(trace)
    for node, origin in sources.items():
        # A mask of floats is made of integers, too: additions to scores.
        if node in front and origin and _is_integer(node):
            read = (user for user in node.users if user in front and sources[user] is None)
            if any(user.all_input_nodes[0] is node for user in read):
                found |= origin
    return found


def made_of_data(trace: Trace, front: set[fx.Node]) -> set[fx.Node]:
    """What forward makes of data without weights, wherever it does: the client, who has them, computes it."""
    if trace.check is None:
        return set()
    data = data_inputs(trace, front)
    return {node for node, origin in _sources(trace).items() if origin and origin & data and node not in data}


def is_data(trace: Trace, front: set[fx.Node], node: fx.Node) -> bool:
    """Whether a value that would cross a cut is the client's data, to which no weights were applied.

    What is made of data without weights may cross only if it says little of them: booleans, and integers that
    are made of floats, such as indices.
    """
    if trace.check is None:
        return _untouched(node)
    origin = _sources(trace)[node] or frozenset()
    data = origin & data_inputs(trace, front)
    if not data or node.meta["dtype"] is torch.bool:
        return False
    return not (_is_integer(node) and all(source.meta["dtype"].is_floating_point for source in data))


def _untouched(node: fx.Node) -> bool:
    """Whether a node of a symbolic trace is an input, or made of inputs without any module or parameter."""
    if node.op in ("call_module", "get_attr"):
        return False
    return node.op == "placeholder" or all(_untouched(argument) for argument in node.all_input_nodes)


def _is_integer(node: fx.Node) -> bool:
    dtype = node.meta.get("dtype", torch.bool)
    return dtype is not torch.bool and not dtype.is_floating_point


def asks_size(node: fx.Node) -> bool:
    """Whether a node of a symbolic trace asks for a size or type, or computes with such answers."""
    if node.op == "call_method":
        return node.target in ("size", "dim", "numel")
    if node.op != "call_function":
        return False
    if node.target is getattr:
        return node.args[1] in ("shape", "dtype", "device", "ndim")
    return bool(node.all_input_nodes) and all(asks_size(argument) for argument in node.all_input_nodes)
