"""Makes modules of the programs of parts, and deals out parameters, buffers and modules among them."""

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx, nn

from cutlayer.errors import CutError
from cutlayer.split.part import Part, Program
from cutlayer.split.tracing.sizes import SizeCheck


def assemble(
    model: nn.Module,
    programs: dict[bool, list[Program]],
    constants: dict[str, torch.Tensor],
    check: SizeCheck | None = None,
    fixed: dict[str, Any] | None = None,
) -> list[Part]:
    """Make modules of the parts' programs (one list for each mode), and distribute the state among them.

    `check` knows which sizes the first part takes, `fixed` with which other arguments the model was traced.
    """
    count = len(programs[False])
    parts = []
    for i in range(count):
        training, evaluating = programs[True][i], programs[False][i]
        same = training.form == evaluating.form and training.source() == evaluating.source()
        modes = {False: evaluating, True: evaluating if same else training}
        parts.append(Part(modes, first=i == 0, last=i == count - 1, check=check, fixed=fixed))
    earlier: set[int] = set()
    for part in parts:
        for target in _targets(program.graph for program in part._cut_programs.values()):
            _attach(part, model, target, constants, earlier)
        earlier.update(id(module) for module in part.modules())
    _check_ties(parts)
    _deal_out_unused(model, parts)
    for part in parts:
        for program in part._cut_programs.values():
            program.compile(part)
        _finish_holders(part, model)
    return parts


def _targets(graphs: Iterable[fx.Graph]) -> list[str]:
    # Short names first: a module that is called whole includes its submodules.
    ops = ("call_module", "get_attr")
    found = {str(node.target) for graph in graphs for node in graph.nodes if node.op in ops}
    return sorted(found, key=lambda name: (name.count("."), name))


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
            # Head and tail of a U-shape are on one side: the client's.
            if owner != i and (owner, i) != (0, 2):
                names = f"'{name}'" if name == other else f"'{other}' and '{name}'"
                raise CutError(
                    f"parameters are shared across the cut: {names} would be in two parts, "
                    "which would train two copies apart. Untie them first (transformers: "
                    "tie_word_embeddings=False in the configuration), or cut in a U-shape whose head and "
                    "tail have them: at=(first, second)."
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
