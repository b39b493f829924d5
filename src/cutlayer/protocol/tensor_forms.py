"""The forms of the tensors that cross a cut, as both ends derive them: shapes and dtypes, by name."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from cutlayer.data.spec import DataSpec
from cutlayer.seeding import undisturbed
from cutlayer.split import Part
from cutlayer.split.tensors import Tensors, call, to_device
from cutlayer.split.vectors import device_of


@dataclass(frozen=True)
class TensorForm:
    """The shape of one sample of a tensor, and its dtype."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32


#: The shape of one sample where one tensor crosses; where several do, the form of each.
Forms: TypeAlias = tuple[int, ...] | dict[str, TensorForm]


def forms_at(x: Tensors) -> Forms:
    """The forms of a batch."""
    if isinstance(x, dict):
        return {name: TensorForm(tuple(tensor.shape[1:]), tensor.dtype) for name, tensor in x.items()}
    return tuple(x.shape[1:])


@torch.no_grad()
def forms_at_cuts(spec: DataSpec, parts: Sequence[Part]) -> list[Forms]:
    """The forms of one sample at each cut: what clients send up, and in a U-shape what comes down to them."""
    x: Any = to_device(spec.preprocess().test(spec.form.zeros(1)[0]), device_of(*parts))
    forms = []
    for i, part in enumerate(parts[: len(parts) - 1 or 1]):
        part.eval()
        with undisturbed():
            x = part(x) if i else call(part, x)
        part.train()
        forms.append(forms_at(x))
    return forms


def largest_tensor(forms: Sequence[Forms], parts: Sequence[Part], samples: int) -> int:
    """The most elements of any tensor of so many samples: at a cut, or all that clients learn."""
    return max(learned(parts), max(map(elements_of, forms)) * samples)


def learned(parts: Sequence[Part]) -> int:
    """How many elements the clients' parts of a model have, buffers included."""
    return sum(t.numel() for part in (parts[0], *parts[2:]) for t in part.state_dict().values())


def gradient_forms(forms: Forms) -> Forms:
    """Those of the gradients: only floats have any."""
    if isinstance(forms, dict):
        return {name: form for name, form in forms.items() if form.dtype.is_floating_point}
    return forms


def elements_of(forms: Forms) -> int:
    """Elements of one sample, of all tensors together."""
    if isinstance(forms, dict):
        return sum(math.prod(form.shape) for form in forms.values())
    return math.prod(forms)


def gradient_elements(x: Tensors) -> Mapping[str, int] | int:
    """How many elements the gradient of what crossed a cut has, for each tensor of floats."""
    if isinstance(x, dict):
        return {name: tensor.numel() for name, tensor in x.items() if tensor.is_floating_point()}
    return x.numel()


def most_elements(forms: Forms | None, samples: int) -> Mapping[str, int] | int | None:
    """How many elements a batch may have at most, before anything of that size is made."""
    if isinstance(forms, dict):
        return {name: samples * math.prod(form.shape) for name, form in forms.items()}
    return None if forms is None else samples * math.prod(forms)


def misfit(found: Tensors, forms: Forms | None, samples: int, dtype: torch.dtype) -> str | None:
    """What is wrong with a batch of so many samples; None if it has these forms."""
    if isinstance(found, dict):
        if forms is not None and (not isinstance(forms, dict) or found.keys() != forms.keys()):
            return f"several tensors, {', '.join(found)}"
        wanted = forms if isinstance(forms, dict) else dict.fromkeys(found)
        for name, tensor in found.items():
            if not _fits(tensor, wanted[name], samples):
                return f"{name} of shape {list(tensor.shape)} of {tensor.dtype}"
        return None
    if isinstance(forms, dict):
        return "one tensor"
    if _fits(found, None if forms is None else TensorForm(forms, dtype), samples):
        return None
    return f"shape {list(found.shape)} of {found.dtype}"


def describe(forms: Forms | None, samples: int, dtype: torch.dtype) -> str:
    """The forms of a batch in words."""
    if forms is None:
        return f"{samples} samples"
    if isinstance(forms, dict):
        each = (f"{name} {[samples, *form.shape]} of {form.dtype}" for name, form in forms.items())
        return ", ".join(each)
    return f"{[samples, *forms]} of {dtype}"


def _fits(tensor: Tensor, form: TensorForm | None, samples: int) -> bool:
    if form is None:
        return bool(tensor.dim()) and len(tensor) == samples
    return tuple(tensor.shape) == (samples, *form.shape) and tensor.dtype == form.dtype
