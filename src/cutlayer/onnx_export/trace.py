"""Record the forward pass of a half as a graph of ONNX operators, in training or in evaluation."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cutlayer.device.inference_half import INPUT
from cutlayer.errors import ModelError
from cutlayer.onnx_export.graph import Shape, Value
from cutlayer.onnx_export.layer_rules import ALL_RULES
from cutlayer.onnx_export.tape import Tape, cannot


class _Named(nn.Module):
    """A half that takes one argument with a name; a `Part` takes any number."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, images: Tensor) -> Any:
        """Run the half."""
        return self.part(images)


@dataclass(frozen=True)
class Traced:
    """The forward pass: its graph and tape, what it reads, what it gives, and buffers that it changes."""

    tape: Tape
    inputs: dict[str, Value]
    """The images, weights and buffers that are used, by name."""
    output: Value
    changed: dict[str, Value]
    """Buffers after the pass, by name."""


def trace(part: nn.Module, images: Tensor, *, training: bool) -> Traced:
    """Record the forward pass of a batch of any size on a part of a model."""
    # Batch norm in training needs more than one sample, and 0 and 1 would be taken for fixed sizes.
    module = _Named(part).train(training)
    batch = torch.export.Dim("batch", min=2, max=1 << 20)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.export(
                module,
                (images.expand(3, *images.shape[1:]),),
                dynamic_shapes={"images": {0: batch}},
                strict=False,
            )
            program = program.run_decompositions()
    except Exception as error:  # whatever the model's own code makes PyTorch's tracer stumble over
        raise ModelError(
            f"PyTorch cannot record the half for ONNX ({type(error).__name__}: {str(error).strip()[:300]}); "
            "cut the model elsewhere, or let this client use PyTorch"
        ) from error
    return _read(program, {name for name, p in part.named_parameters() if p.requires_grad})


def _read(program: Any, trained: set[str]) -> Traced:
    tape, known, inputs = Tape(), {}, {}
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    constants = signature.inputs_to_lifted_tensor_constants
    for node in program.graph.nodes:
        if node.op == "placeholder":
            if node.name in constants:
                value = program.constants[constants[node.name]].detach().numpy()
                known[node.name] = Value(
                    tape.graph.constant(value, value.dtype), value.shape, False, value.dtype
                )
                continue
            name = names.get(node.name, INPUT).removeprefix("part.")
            kind = _dtype(node.meta["val"])
            known[node.name] = inputs[name] = Value(name, _shape(node.meta["val"]), name in trained, kind)
        elif node.op == "call_function":
            known[node.name] = _apply(tape, node, known)
        elif node.op == "output":
            found = [known[n.name] for n in node.args[0]]
    changed, output = {}, None
    for spec, value in zip(signature.output_specs, found, strict=True):
        if spec.kind.name == "BUFFER_MUTATION":
            changed[spec.target.removeprefix("part.")] = value
        elif spec.kind.name == "USER_OUTPUT":
            output = value
    if output is None:
        raise cannot("a half without an output", "gives nothing")
    return Traced(tape, inputs, output, changed)


def _apply(tape: Tape, node: Any, known: dict[str, Any]) -> Any:
    target = str(node.target)
    if "getitem" in target:
        return known[node.args[0].name][node.args[1]]
    if isinstance(node.meta["val"], (int, torch.SymInt)):
        return None  # a size, of which rules learn from the shapes of tensors
    rule = ALL_RULES.get(target)
    if rule is None:
        random = ("dropout", "bernoulli", "rand")
        why = "draws random numbers" if any(word in target for word in random) else "has no rule"
        raise cannot(f"the operator {target}", why)

    def value(x: Any) -> Any:
        return known[x.name] if isinstance(x, torch.fx.Node) else x

    args = torch.fx.map_arg(node.args, value)
    kwargs = torch.fx.map_arg(node.kwargs, value)
    meta = node.meta["val"]
    shape = [_shape(m) for m in meta] if isinstance(meta, (tuple, list)) else _shape(meta)
    if isinstance(meta, Tensor) and not meta.is_floating_point():
        return _count(tape, target, shape, args)
    return rule(tape, shape, *args, **kwargs)


def _count(tape: Tape, target: str, shape: Any, args: Any) -> Value:
    """Integers: only the counter of batch norm, which goes up by one."""
    if target != "aten.add.Tensor" or not isinstance(args[1], int):
        raise cannot(f"the operator {target} on integers")
    name = tape.graph.add("Add", [args[0].name, tape.graph.constant(args[1], np.int64)])
    return Value(name, shape, False, np.int64)


def _shape(x: Any) -> Shape:
    """The shape of a recorded tensor; a size that depends on the batch must be the batch itself."""
    sizes: list[int | None] = []
    for size in x.shape:
        if isinstance(size, int):
            sizes.append(size)
        elif size.node.expr.is_Symbol:
            sizes.append(None)
        else:
            raise cannot(f"a tensor of shape {list(x.shape)}", "mixes samples")
    return tuple(sizes)


def _dtype(x: Tensor) -> Any:
    return torch.empty(0, dtype=x.dtype).numpy().dtype
