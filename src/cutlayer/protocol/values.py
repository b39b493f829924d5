"""Bounds on the numbers that another party sends: finite, and not so large that one of them ends training."""

import math

import torch
from torch import Tensor

from cutlayer.errors import MessageError


def check_values(tensor: Tensor, limit: float | None, what: str) -> None:
    """Raise MessageError if a value is not finite or beyond the limit. Without a limit all values pass."""
    if limit is None or not tensor.numel() or not (tensor.is_floating_point() or tensor.dtype == torch.int64):
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
