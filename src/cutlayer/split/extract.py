"""Copy the nodes of one part out of a traced graph, into one that takes and gives what crosses the cuts."""

from collections.abc import Mapping
from typing import Any

from torch import fx

from cutlayer.errors import CutError
from cutlayer.split.recompute import can_be_made, is_size
from cutlayer.split.tracing.sizes import DEVICE, device_of, dimension, write_size


def extract(
    nodes: list[fx.Node],
    fed: Mapping[str, fx.Node] | None,
    handed: Mapping[str, fx.Node] | None,
    *,
    tidy: bool,
) -> fx.Graph:
    """Copy nodes into a graph of their own that takes the values `fed` and returns those `handed`, by name.

    A single value is returned as it is. `tidy` leaves out what is computed in vain.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for name, node in (fed or {}).items():
        copies[node] = graph.placeholder(name if len(fed or {}) > 1 else "smashed")
    sizes = {} if fed is None else _sizes_of(graph, fed, copies)

    def copy_of(node: fx.Node) -> Any:
        if node in copies:
            return copies[node]
        if is_size(node) and fed is not None:
            if node.meta["size"] == DEVICE:
                return graph.call_function(device_of, (next(iter(copies.values())),))
            return write_size(graph, node.meta["size"], sizes)
        # A parameter goes to the part that reads it, wherever the trace found it first. So does what can be
        # computed on either side.
        if node.op == "get_attr" or (tidy and can_be_made(node)):
            copies[node] = graph.node_copy(node, copy_of)
            return copies[node]
        raise CutError(f"the value of {node.name} is not there behind the cut; cut elsewhere.")

    for node in nodes:
        if node.op == "output":
            graph.output(fx.node.map_arg(node.args[0], copy_of))
        elif node.op != "get_attr" and node not in copies and not (is_size(node) and fed is not None):
            copies[node] = graph.node_copy(node, copy_of)
    if handed is not None:
        found = {name: copy_of(node) for name, node in handed.items()}
        graph.output(found if len(found) > 1 else next(iter(found.values())))
    if tidy:
        graph.eliminate_dead_code(_has_effect)
    return graph


def _sizes_of(
    graph: fx.Graph, fed: Mapping[str, fx.Node], copies: Mapping[fx.Node, fx.Node]
) -> dict[Any, fx.Node]:
    """Where the part finds the value of each symbol: in the shapes of what it takes."""
    found: dict[Any, fx.Node] = {}
    for node in fed.values():
        for dim, size in enumerate(node.meta.get("shape", ())):
            if getattr(size, "is_Symbol", False) and size not in found:
                found[size] = graph.call_function(dimension, (copies[node], dim))
    return found


def _has_effect(node: fx.Node) -> bool:
    if node.op in ("placeholder", "output", "call_module"):
        return True
    # What draws random numbers moves the generator on for all that follows.
    return node.op == "call_function" and not can_be_made(node)
