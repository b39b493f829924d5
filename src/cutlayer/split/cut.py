"""Cut a model in two parts, or in three for a U-shape, at modules given by name."""

import difflib
from typing import Any, overload

from torch import nn

from cutlayer.errors import CutError
from cutlayer.split.divide import divide
from cutlayer.split.part import Part
from cutlayer.split.points import valid_cuts


@overload
def cut(model: nn.Module, at: str, *, example: Any = None) -> tuple[Part, Part]: ...


@overload
def cut(model: nn.Module, at: tuple[str, str], *, example: Any = None) -> tuple[Part, Part, Part]: ...


def cut(model: nn.Module, at: str | tuple[str, str], *, example: Any = None) -> tuple[Part, ...]:
    """Cut a model at a module's name, as listed by `model.named_modules()`.

    With one name the client ends with that module: what follows it, down to a single `relu`,
    belongs to the server. With two names the head ends with the first module and the tail begins
    with the second; what lies between is the server's body.

    >>> client, server = cut(model, at="layer2")
    >>> head, body, tail = cut(model, at=("layer1", "fc"))

    The parts share the model's parameters and buffers and keep their names: the parts' state
    dicts are disjoint, and together they are the model's. State that the forward pass never reads
    goes with the last part. The parts work in training and evaluation mode and can be deep-copied.

    If several tensors cross (skip connections, a mask beside hidden states), the parts give and take a dict
    of them by name. What is made of sizes alone, such as a causal mask, does not cross.

    Only the modules around a cut are traced with torch.fx; all others are called whole, so an `nn.Sequential`
    can be cut between any children. `example` is an input of the model: a tensor, a tuple of several, or a
    dict of keywords. With it, models that torch.fx cannot trace are traced by running them on tensors of that
    form; models of the transformers package have one already. No parameter may be needed on both sides, and
    the model's data may not cross as they are; CutError says what is wrong and lists the valid cuts.
    """
    names = (at,) if isinstance(at, str) else tuple(at) if isinstance(at, (tuple, list)) else ()
    if not isinstance(model, nn.Module):
        raise CutError(f"a {type(model).__name__} cannot be cut; give an nn.Module.")
    if len(names) not in (1, 2) or not all(isinstance(name, str) for name in names):
        raise CutError(f"at={at!r} is neither the name of a module nor a pair of names.")
    try:
        return tuple(divide(model, names, example))
    except CutError as error:
        raise CutError(f"{error}{_advice(model, names, example)}") from error.__cause__


def _advice(model: nn.Module, names: tuple[str, ...], example: Any) -> str:
    try:
        ends, starts = valid_cuts(model, example)
    except CutError:
        return ""  # the model as a whole cannot be traced, as the error says already
    known = [name for name, _ in model.named_modules(remove_duplicate=False) if name]
    advice = ""
    for name, valid in zip(names, (ends, starts), strict=False):
        if name not in known:
            near = [
                *difflib.get_close_matches(name, valid, 1),
                *difflib.get_close_matches(name, known, 1),
            ]
            advice += f" Did you mean '{near[0]}'?" if near else ""
    if not ends:
        return f"{advice} No cut of this model is valid."
    advice += f" Valid cuts are: {', '.join(ends)}."
    if len(names) == 2:
        advice += f" A tail can begin with: {', '.join(starts)}."
    return advice
