"""`Part`: a part of a cut model as a module, with its parameters and buffers under their original names."""

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx, nn

from cutlayer.errors import CutError, ModelError
from cutlayer.split.program import Program
from cutlayer.split.tracing.sizes import SizeCheck


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
                    "tie_word_embeddings=False in the configuration)."
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
