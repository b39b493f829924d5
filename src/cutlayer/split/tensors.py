"""What crosses a cut: one tensor, or several by name.

`Tensors` is a plain tensor where one crosses, and a dict in the order of the forward pass where several do.
Floating-point tensors have gradients. Integer and boolean ones have none. All have the samples in front.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from cutlayer.errors import ModelError

Tensors: TypeAlias = Tensor | dict[str, Tensor]
#: What a model takes: one tensor, several in order, or several by keyword.
Inputs: TypeAlias = Tensor | tuple[Tensor, ...] | dict[str, Tensor]


def call(part: nn.Module, inputs: Inputs) -> Any:
    """Call the first part of a model with what a data set gives."""
    try:
        if isinstance(inputs, dict):
            return part(**inputs)
        return part(*inputs) if isinstance(inputs, tuple) else part(inputs)
    except RuntimeError as error:
        reason = _unfit(inputs, str(error).strip().partition("\n")[0])
        if type(error) is not RuntimeError or reason is None:
            raise
        raise ModelError(reason) from error


def _unfit(inputs: Inputs, said: str) -> str | None:
    """Why a model does not take these inputs, by what PyTorch said; None if it is not the inputs' fault."""
    several = inputs.values() if isinstance(inputs, dict) else inputs
    tensors = [several] if isinstance(several, Tensor) else list(several)
    wrong = [x.dtype for x in tensors if x.is_floating_point() and x.dtype != torch.float32]
    if "dtype" in said and wrong:
        kind = str(wrong[0]).removeprefix("torch.")
        return f"inputs are {kind}, which the model does not take ({said}); give them as float32: x.float()"
    if not blames_shapes(said):
        return None
    forms = ", ".join(str(list(x.shape)) for x in tensors)
    return (
        f"the model fails on a batch of inputs {forms} ({said}); give data of the shape that its layers "
        "expect, or change the layers"
    )


def blames_shapes(said: str) -> bool:
    """Whether an error of PyTorch is about shapes that do not fit a layer."""
    return re.search(r"shape|channels|dimension|size of tensor", said) is not None


def apply_to_inputs(f: Callable[[Tensor], Tensor], inputs: Inputs) -> Inputs:
    """A function of each tensor that a model takes."""
    if isinstance(inputs, dict):
        return {name: f(tensor) for name, tensor in inputs.items()}
    return tuple(map(f, inputs)) if isinstance(inputs, tuple) else f(inputs)


def samples_of(inputs: Inputs) -> int:
    """How many samples a model is given."""
    several = tuple(inputs.values()) if isinstance(inputs, dict) else inputs
    return len(several[0]) if isinstance(several, tuple) else len(several)


def split_inputs(inputs: Inputs, size: int) -> list[Inputs]:
    """What a model is given, in pieces of at most so many samples."""
    starts = range(0, samples_of(inputs), size)
    return [apply_to_inputs(lambda tensor: tensor[at : at + size], inputs) for at in starts]  # noqa: B023


def to_device(inputs: Inputs, device: torch.device) -> Inputs:
    """What a model takes, on its device."""
    return apply_to_inputs(lambda tensor: tensor.to(device), inputs)


def as_float32(output: Any) -> Any:
    """What a part gives, with float32 in place of the bfloat16 of autocast."""
    if isinstance(output, Tensor):
        return output.float() if output.dtype == torch.bfloat16 else output
    wide = (leaf.dtype != torch.bfloat16 for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor))
    return output if all(wide) else pytree.tree_map_only(Tensor, as_float32, output)


def samples_in(x: Tensors) -> int:
    """How many samples a batch has."""
    return len(tensors_of(x)[0])


def main_output(output: Any) -> Tensor:
    """The tensor that a loss is computed from: a model's only output, its logits or its hidden states."""
    if isinstance(output, Tensor):
        return output
    named = output if isinstance(output, Mapping) else {}
    for name in ("logits", "last_hidden_state"):
        if isinstance(named.get(name), Tensor):
            found: Tensor = named[name]
            return found
    several = list(named.values()) if named else output
    if isinstance(several, (tuple, list)) and several and isinstance(several[0], Tensor):
        return several[0]
    raise ModelError(
        f"the model returns a {type(output).__name__}, in which no tensor to compute the loss from is "
        "found; let it return one tensor, or several with the logits first"
    )


def tensors_of(x: Tensors) -> list[Tensor]:
    """All of them, in order."""
    return list(x.values()) if isinstance(x, dict) else [x]


def apply(f: Callable[[Tensor], Tensor], x: Tensors) -> Tensors:
    """A function of each tensor."""
    return {name: f(tensor) for name, tensor in x.items()} if isinstance(x, dict) else f(x)


def floats(x: Tensors) -> Tensors:
    """Those that have gradients, in the form that gradients have."""
    if isinstance(x, dict):
        return {name: tensor for name, tensor in x.items() if tensor.is_floating_point()}
    return x


def received(x: Tensors) -> Tensors:
    """As they begin a part's pass: without history, and those that have gradients ready to collect them."""
    return apply(lambda t: t.detach().requires_grad_(t.is_floating_point()), x)


def like(x: Tensors, values: Sequence[Tensor]) -> Tensors:
    """Values in the form of `x`: under its names, or alone."""
    return dict(zip(x, values, strict=True)) if isinstance(x, dict) else values[0]


def elements(x: Tensors) -> int:
    """How many elements they have together."""
    return sum(tensor.numel() for tensor in tensors_of(x))


def raw_bytes(x: Tensors) -> int:
    """Bytes without compression: floats as float32, others as they are."""
    return sum(t.numel() * (4 if t.is_floating_point() else t.element_size()) for t in tensors_of(x))


def has_integers(x: Tensors) -> bool:
    """Whether some of them are no floats."""
    return any(not tensor.is_floating_point() for tensor in tensors_of(x))


def flat(x: Tensors) -> Tensor:
    """All floating-point values: the tensor itself, or several as one vector."""
    if isinstance(x, dict):
        return torch.cat([tensor.reshape(-1).float() for tensor in tensors_of(floats(x))])
    return x


def gradient_elements(x: Tensors) -> Mapping[str, int] | int:
    """How many elements the gradient of what crossed a cut has, for each tensor of floats."""
    if isinstance(x, dict):
        return {name: tensor.numel() for name, tensor in x.items() if tensor.is_floating_point()}
    return x.numel()


def relative_error(x: Tensors, y: Tensors) -> float:
    """||x - y||^2 / ||x||^2, over all floats; 0 if both are zero, infinite if only x is."""
    a, b = (flat(each).detach().float() for each in (x, y))
    lost = float(torch.linalg.vector_norm(a - b)) ** 2
    whole = float(torch.linalg.vector_norm(a)) ** 2
    return lost / whole if whole else (0.0 if lost == 0 else float("inf"))


@torch.no_grad()
def all_finite(x: Any) -> bool:
    """Whether no value is NaN or infinite, in all tensors of whatever a part returns.

    A sum that is finite shows it in one pass, without memory for a mask.
    """
    found = [leaf for leaf in pytree.tree_leaves(x) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    if not found or math.isfinite(torch.stack([t.sum(dtype=torch.float32) for t in found]).sum()):
        return True
    # Finite values can have a sum that is not.
    return all(bool(torch.isfinite(tensor).all()) for tensor in found)


def multiplied(x: Tensors, by: float) -> Tensors:
    """Each value times a number."""
    return apply(lambda tensor: tensor * by, x)


@torch.no_grad()
def lost_share(x: Tensors, y: Tensors) -> Tensors:
    """What compression changed in those that have gradients, x - y, as a share of the norm of all of x.

    In float32, because shares of many elements are too small for half precision.
    """
    norm = torch.linalg.vector_norm(flat(floats(x)).float())
    # Where all of x is zero, nothing was lost that could be compared with it.
    scale = torch.where(norm >= torch.finfo(norm.dtype).tiny, 1 / norm, 0.0)
    pairs = zip(tensors_of(floats(x)), tensors_of(floats(y)), strict=True)
    return like(floats(x), [torch.sub(a.float(), b.float()).mul_(scale) for a, b in pairs])


@torch.no_grad()
def pulled(gradient: Tensors, lost: Tensors, commitment: float) -> Tensors:
    """The gradient, and that of a commitment: what compression lost (`lost_share`), in norms of the gradient.

    A gradient that is not finite stays as it is.
    """
    norm = torch.linalg.vector_norm(flat(gradient).float())
    times = torch.where(torch.isfinite(norm), commitment * norm, 0.0)

    def add(a: Tensor, b: Tensor) -> Tensor:
        wide = torch.promote_types(a.dtype, torch.float32)
        return torch.addcmul(a.to(wide), b.to(wide), times.to(wide)).to(a.dtype)

    pairs = zip(tensors_of(gradient), tensors_of(lost), strict=True)
    return like(gradient, [add(a, b) for a, b in pairs])


def divided(x: Tensors, by: float) -> Tensors:
    """Each value divided by a number."""
    return apply(lambda tensor: tensor / by, x)


def concatenate(batches: Sequence[Tensors]) -> Tensors:
    """Several batches as one."""
    named = [batch for batch in batches if isinstance(batch, dict)]
    if named:
        return {name: torch.cat([batch[name] for batch in named]) for name in named[0]}
    return torch.cat([tensor for batch in batches for tensor in tensors_of(batch)])


def divide_batch(x: Tensors, sizes: Sequence[int]) -> list[Tensors]:
    """One batch as several of these sizes."""
    if not isinstance(x, dict):
        return list(torch.split(x, list(sizes)))
    pieces = {name: torch.split(tensor, list(sizes)) for name, tensor in x.items()}
    return [{name: piece[i] for name, piece in pieces.items()} for i in range(len(sizes))]


def gradients_for(x: Tensors, gradient: Tensors) -> tuple[list[Tensor], list[Tensor]]:
    """Those of `x` that have a history, and the gradient of each. Raises if a name or a form is wrong."""
    if isinstance(x, dict) != isinstance(gradient, dict):
        raise ValueError("one gradient for several tensors, or several for one")
    outputs = floats(x)
    if isinstance(outputs, dict) and isinstance(gradient, dict):
        if outputs.keys() != gradient.keys():
            raise ValueError(f"gradients of {', '.join(gradient)}; expected {', '.join(outputs)}")
        gradient = {name: gradient[name] for name in outputs}
    pairs = zip(tensors_of(outputs), tensors_of(gradient), strict=True)
    found = [(output, g) for output, g in pairs if output.requires_grad]
    return [output for output, _ in found], [g for _, g in found]
