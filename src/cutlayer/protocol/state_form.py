"""What a client's state must look like: names, shapes, types and values, before anything of it is stored.

A state that was stored unchecked would spoil every later resume: an optimizer entry that cannot be, a tensor
that is missing, a variance below zero.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from cutlayer.errors import MessageError
from cutlayer.protocol.state_bytes import OWN
from cutlayer.protocol.tensor_forms import check_values
from cutlayer.split.client import ClientHalf
from cutlayer.split.state import client_state

#: What a client may have for itself: the residual of error feedback, and the means of an adaptive rate.
_RESIDUAL, _RATE = f"{OWN}memory", f"{OWN}rate"
_RATE_VALUES = 3

Form = tuple[tuple[int, ...], torch.dtype]


@dataclass(frozen=True)
class StateForm:
    """The tensors of a client's state: those that must be there, and those that may be."""

    required: Mapping[str, Form]
    optional: Mapping[str, Form]

    @staticmethod
    def of(half: ClientHalf) -> StateForm:
        """The form of such halves, found on a copy of one."""
        now = client_state(half).items()
        required = {name: _form(t) for name, t in now if not name.startswith("optimizer.")}
        model = copy.deepcopy(half.model)
        # One update with zero gradients makes the optimizer create all that it will ever remember. Before it,
        # gradients may wait for others.
        optional: dict[str, Form] = {}
        for _ in range(model.rule.accumulate):
            model.apply([torch.zeros_like(p) for p in model.parameters], 0.0)
            after = client_state(ClientHalf(model))
            optional |= {name: _form(t) for name, t in after.items() if name not in required}
        elements = sum(p.numel() for p in half.model.parameters)
        optional |= {_RESIDUAL: ((elements,), torch.float32), _RATE: ((_RATE_VALUES,), torch.float64)}
        return StateForm(required, optional)

    def check(self, state: Mapping[str, Tensor], *, complete: bool, max_value: float | None) -> None:
        """Raise MessageError unless this is such a state. `complete`: all that must be there is."""
        missing = next((name for name in self.required if name not in state), None)
        if complete and missing is not None:
            raise MessageError(f"the state has no tensor {missing!r}")
        for name, tensor in state.items():
            expected = self.required.get(name) or self.optional.get(name)
            if expected is None:
                raise MessageError(f"the state has a tensor {name[:80]!r}, which this model does not know")
            if _form(tensor) != expected:
                raise MessageError(
                    f"{name} is {list(tensor.shape)} of {tensor.dtype} in the state; expected "
                    f"{list(expected[0])} of {expected[1]}"
                )
            if max_value is not None:
                check_values(tensor, max_value, name)
            if name.endswith(("running_var", "num_batches_tracked", "exp_avg_sq", ".step")):
                lowest = float(tensor.min()) if tensor.numel() else 0.0
                if lowest < 0:
                    raise MessageError(f"{name} is {lowest:g} in the state; it cannot be below 0")


def _form(tensor: Tensor) -> Form:
    return tuple(tensor.shape), tensor.dtype
