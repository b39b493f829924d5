"""What another party may send: the forms of the tensors that cross a cut, and bounds on their values.

A form is a shape and a dtype, as both ends derive them; where several tensors cross, each has one by its
name. Values have to be finite, and not so large that one of them ends training.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from cutlayer.data.spec import DataSpec
from cutlayer.errors import MessageError
from cutlayer.seeding import undisturbed
from cutlayer.split import Part
from cutlayer.split.tensors import Tensors, call, to_device
from cutlayer.split.weights import device_of


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
def forms_at_cuts(spec: DataSpec, parts: Sequence[nn.Module]) -> list[Forms]:
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


def most_elements(forms: Forms | None, samples: int) -> Mapping[str, int] | int | None:
    """How many elements a batch may have at most, before anything of that size is made."""
    if forms is None:
        return None
    if isinstance(forms, dict):
        return {name: samples * math.prod(form.shape) for name, form in forms.items()}
    return samples * math.prod(forms)


def misfit(found: Tensors, forms: Forms, samples: int, dtype: torch.dtype) -> str | None:
    """What is wrong with a batch of so many samples; None if it has these forms."""
    if isinstance(found, dict):
        if not isinstance(forms, dict) or found.keys() != forms.keys():
            return f"several tensors, {', '.join(found)}"
        for name, tensor in found.items():
            if not _fits(tensor, forms[name], samples):
                return f"{name} of shape {list(tensor.shape)} of {tensor.dtype}"
        return None
    if isinstance(forms, dict):
        return "one tensor"
    if _fits(found, TensorForm(forms, dtype), samples):
        return None
    return f"shape {list(found.shape)} of {found.dtype}"


def describe(forms: Forms, samples: int, dtype: torch.dtype) -> str:
    """The forms of a batch in words."""
    if isinstance(forms, dict):
        each = (f"{name} {[samples, *form.shape]} of {form.dtype}" for name, form in forms.items())
        return ", ".join(each)
    return f"{[samples, *forms]} of {dtype}"


def _fits(tensor: Tensor, form: TensorForm, samples: int) -> bool:
    return tuple(tensor.shape) == (samples, *form.shape) and tensor.dtype == form.dtype


def check_values(tensor: Tensor, limit: float, what: str) -> None:
    """Raise MessageError if a value is not finite or beyond the limit."""
    if not tensor.numel() or not (tensor.is_floating_point() or tensor.dtype == torch.int64):
        return
    least, most = torch.aminmax(tensor)
    low, high = least.item(), most.item()
    # Counters, such as those of batch norm, may be large.
    bound = limit if tensor.is_floating_point() else float(1 << 53)
    if not (-bound <= low and high <= bound):
        largest = high if not abs(low) > abs(high) else low
        found = "not finite" if not (math.isfinite(low) and math.isfinite(high)) else f"up to {largest:g}"
        raise MessageError(f"values of {what} are {found}; at most {bound:g} is accepted")


def check_number(value: float, what: str, *, low: float = 0.0, high: float = math.inf) -> None:
    """Raise MessageError unless low <= value <= high; NaN never is."""
    if not low <= value <= high or not math.isfinite(value):
        raise MessageError(f"{what} is {value}; expected a number from {low:g} to {high:g}")
