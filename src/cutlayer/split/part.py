"""`Part`: a part of a cut model as a module, with its parameters and buffers under their original names."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx, nn

from cutlayer.errors import CutError, ModelError


class Part(nn.Module):
    """One part of a cut model.

    It shares parameters, buffers and modules with the whole model: training it trains the whole
    model, and setting its mode sets that of the shared modules. The reverse does not hold: call
    `train()` and `eval()` on the parts. A deep copy shares nothing.
    """

    def __init__(self, *, first: bool, last: bool) -> None:
        super().__init__()
        self._cut_first = first
        self._cut_last = last
        self._cut_forwards: dict[bool, Callable[..., Any]] = {}

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Compute what the whole model computes between this part's ends. The first takes keywords, too."""
        if not self._cut_first:
            inputs = tuple(_writable(x) for x in inputs)
        # `self.training` in a traced forward is fixed when it is traced: one graph for each mode.
        try:
            output = self._cut_forwards[self.training](self, *inputs, **named)
        except ValueError as error:
            # PyTorch raises a plain ValueError, so it is recognised by its message.
            if "more than 1 value per channel" not in str(error):
                raise
            raise ModelError(
                "batch norm cannot train on a single value a channel, and a batch of one sample came to it. "
                "Let no batch have only one sample: drop the last, partial one (--set train.drop_last=true) "
                "or change the batch size"
            ) from error
        # While a part is itself being cut, a torch.fx proxy takes the place of the tensor.
        if not (self._cut_last or isinstance(output, (torch.Tensor, fx.Proxy))):
            raise CutError(
                f"what crosses the cut must be one tensor, but it is a {type(output).__name__}. "
                "Cut behind the module that makes a tensor of it."
            )
        return output


def _writable(x: Any) -> Any:
    # The part may begin with an in-place operation. Autograd refuses to write into a leaf, such as a decoded
    # tensor, and in one process the sender may still need its own.
    return x.clone() if isinstance(x, torch.Tensor) and x.is_leaf else x


def assemble(
    model: nn.Module, graphs: dict[bool, list[fx.Graph]], constants: dict[str, torch.Tensor]
) -> list[Part]:
    """Make modules of the parts' graphs (one list for each mode), and distribute the state among them."""
    count = len(graphs[False])
    parts = [Part(first=i == 0, last=i == count - 1) for i in range(count)]
    earlier: set[int] = set()
    for i, part in enumerate(parts):
        for target in _targets(graphs[mode][i] for mode in graphs):
            _attach(part, model, target, constants, earlier)
        earlier.update(id(module) for module in part.modules())
    _check_ties(parts)
    _deal_out_unused(model, parts)
    for i, part in enumerate(parts):
        sources = {mode: graphs[mode][i].python_code("self").src for mode in graphs}
        evaluating = _compile(part, graphs[False][i])
        same = sources[True] == sources[False]
        part._cut_forwards[False] = evaluating
        part._cut_forwards[True] = evaluating if same else _compile(part, graphs[True][i])
        _finish_holders(part, model)
    return parts


def _targets(graphs: Iterable[fx.Graph]) -> list[str]:
    # Short names first: a module that is called whole includes its submodules.
    ops = ("call_module", "get_attr")
    found = {str(node.target) for graph in graphs for node in graph.nodes if node.op in ops}
    return sorted(found, key=lambda name: (name.count("."), name))


def _compile(part: Part, graph: fx.Graph) -> Callable[..., Any]:
    # Only the generated function is kept. A GraphModule would make plain tensors and non-persistent
    # buffers persistent, and would drop unused state on deepcopy.
    forward: Callable[..., Any] = type(fx.GraphModule(part, graph)).forward
    return forward


def _attach(
    part: nn.Module,
    model: nn.Module,
    name: str,
    constants: dict[str, torch.Tensor],
    earlier: set[int],
) -> None:
    """Register in the part what the model has under that name, in the same way."""
    holder, source = part, model
    *path, last = name.split(".")
    for atom in path:
        source = source.get_submodule(atom)
        if atom not in holder._modules:
            holder.add_module(atom, nn.Module())
        holder = holder.get_submodule(atom)
        if holder is source:
            return  # already there, as part of a module that was attached whole
    if last in source._modules:
        module = source.get_submodule(last)
        if id(module) in earlier and not module.state_dict():
            # One activation or dropout used in two parts: each needs its own mode.
            module = copy.deepcopy(module)
        holder.add_module(last, module)
    elif last in source._parameters:
        holder.register_parameter(last, source._parameters[last])
    elif last in source._buffers:
        persistent = last not in source._non_persistent_buffers_set
        holder.register_buffer(last, source._buffers[last], persistent=persistent)
    else:
        # A tensor that is no buffer: registered so that it moves with the part, but not saved.
        tensor = constants[name] if name in constants else getattr(source, last)
        holder.register_buffer(last, tensor, persistent=False)


def _check_ties(parts: list[Part]) -> None:
    owners: dict[int, tuple[int, str]] = {}
    for i, part in enumerate(parts):
        for name, tensor in part.state_dict(keep_vars=True).items():
            if not isinstance(tensor, torch.Tensor):
                continue  # what get_extra_state returned
            owner, other = owners.setdefault(id(tensor), (i, name))
            if owner != i:
                names = f"'{name}'" if name == other else f"'{other}' and '{name}'"
                raise CutError(
                    f"parameters are shared across the cut: {names} would be in two parts, "
                    "which would train two copies apart."
                )


def _deal_out_unused(model: nn.Module, parts: list[Part]) -> None:
    """Attach state that no graph reads: to the part that has it under another name, else to the last part."""
    owners = {id(t): p for p in parts for t in p.state_dict(keep_vars=True).values()}
    present = {name for part in parts for name in part.state_dict()}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if name in present:
            continue
        if name.rpartition(".")[2] == "_extra_state":
            raise CutError(f"the module that makes '{name}' would be divided, and that with it.")
        _attach(owners.get(id(tensor), parts[-1]), model, name, {}, set())


def _finish_holders(part: Part, model: nn.Module) -> None:
    """Give the container modules made for this part the mode and the order of the original ones."""
    for name, holder in part.named_modules():
        if type(holder) is nn.Module or holder is part:
            source = model.get_submodule(name)
            holder.training = source.training
            _sort(holder._modules, source._modules)
            _sort(holder._parameters, source._parameters)
            _sort(holder._buffers, source._buffers)


def _sort(entries: dict[str, Any], like: dict[str, Any]) -> None:
    # The last bit of sums over parameters, as in gradient clipping, depends on their order.
    order = {name: i for i, name in enumerate(like)}
    for name in sorted(entries, key=lambda name: order.get(name, len(order))):
        entries[name] = entries.pop(name)
