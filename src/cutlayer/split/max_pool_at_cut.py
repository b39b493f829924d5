"""Find a max pool that takes smashed data as they are, which lossy codecs train badly.

A quantized feature map has many equal values, so several places of a window tie for the largest one. PyTorch
sends the whole gradient to the first of them, wherever the largest value was before it was quantized. A
convolution or a linear layer in between mixes values, and there are no ties to speak of.
"""

from torch import fx, nn

from cutlayer.split.part import Part

_POOLS = (
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.MaxPool3d,
    nn.AdaptiveMaxPool1d,
    nn.AdaptiveMaxPool2d,
    nn.AdaptiveMaxPool3d,
)

#: Layers and functions that leave equal values equal.
_KEEP_TIES = (nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.Hardtanh)
_FUNCTIONS_KEEP_TIES = ("relu", "relu_", "leaky_relu", "clamp")


def max_pool_at_cut(part: nn.Module) -> str | None:
    """The name of the max pool that comes first in a part behind a cut; None if there is none.

    >>> client, server = cut(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2)), at="1")
    >>> max_pool_at_cut(server)
    '2'
    """
    waiting = part.input_nodes() if isinstance(part, Part) else []
    while waiting:
        for node in waiting.pop().users:
            for name, layer in _layers(part, node):
                if isinstance(layer, _POOLS) or (isinstance(layer, str) and "max_pool" in layer):
                    return name
                if not (isinstance(layer, _KEEP_TIES) or layer in _FUNCTIONS_KEEP_TIES):
                    break
            else:
                waiting.append(node)
    return None


def _layers(part: nn.Module, node: fx.Node) -> list[tuple[str, nn.Module | str]]:
    """The layers that a node calls, in order: modules, or the name of a function."""
    if node.op == "call_module":
        return _in_order(str(node.target), part.get_submodule(str(node.target)))
    name = str(getattr(node.target, "__name__", node.target))
    return [(name, name)]


def _in_order(name: str, module: nn.Module) -> list[tuple[str, nn.Module | str]]:
    """A module, or all in it where the order of its calls is known."""
    if type(module) is not nn.Sequential:
        return [(name, module)]
    return [
        found for inner, layer in module.named_children() for found in _in_order(f"{name}.{inner}", layer)
    ]
