"""The paper's upper bounds of the squared error, relative to ||x||^2, and the conditions of Theorem 3.

In the paper's names: d elements of f bits; QU sends q1 bits each, SP keeps k1 values behind a 1-bit mask, MS
keeps k2 behind a mask of q2 bits. alpha = ||values filtered by MS's top-k|| / ||x||.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cutlayer.errors import InputError

FLOAT_BITS = 32


def alpha(x: Tensor, k: int) -> float:
    """The share of the 2-norm that top-k sparsification filters out.

    >>> alpha(torch.tensor([4.0, 3.0, 0.0]), 1)
    0.6
    """
    return filtered(x, k)[0]


def filtered(x: Tensor, k: int) -> tuple[float, float]:
    """alpha, and the smallest top value over ||x||."""
    flat = x.detach().abs().reshape(-1)
    if not 1 <= k <= len(flat):
        raise InputError(f"k={k}: expected 1 to {len(flat)}, the number of elements")
    top = torch.topk(flat, k, sorted=False)
    whole = math.sqrt(float(flat.square().sum(dtype=torch.float64)))
    if not whole:
        return 0.0, 0.0
    # A difference of sums would lose precision where little is filtered.
    flat[top.indices] = 0.0
    lost = math.sqrt(float(flat.square_().sum(dtype=torch.float64)))
    return lost / whole, float(top.values.min()) / whole


def bound_qu(d: int, q1: float) -> float:
    """sqrt(d) / (2^q1 - 1)."""
    levels: float = 2.0**q1 - 1
    return math.sqrt(d) / levels


def bound_sp(d: int, k1: float) -> float:
    """(d - k1) / d."""
    return (d - k1) / d


def bound_ms(d: int, k2: float, q2: int, alpha: float) -> float:
    """alpha sqrt(d - k2) / (2^q2 - 1)."""
    return alpha * math.sqrt(d - k2) / (2.0**q2 - 1)


def tight_ms(x: Tensor, k: int, q2: int) -> float:
    """A tighter bound for MS, for both roundings, that can be below 1.

    A filtered value t errs by at most min(t, s) with s = Top_min / (2^q2 - 1), so by t s at most in the
    square; the sum of all t is at most sqrt(d - k) times their norm. The paper's bound is this one with
    Top_min replaced by the larger ||x||.
    """
    share, top_min = filtered(x, k)
    return bound_ms(x.numel(), k, q2, share) * top_min


def tight_qu(x: Tensor, q1: int) -> float:
    """A tighter bound for QU, for values that are not negative: ||x|| is replaced by the range."""
    flat = x.detach().double().reshape(-1)
    whole = float(flat.norm())
    if not whole:
        return 0.0
    return bound_qu(len(flat), q1) * float(flat.max() - flat.min()) / whole


def proof_q2(alpha: float, d: int) -> float:
    """The mask bits that the proof of Theorem 3 needs for SP: alpha exp(d / f) <= (2^q2 - 1) / d.

    They grow as d / (f ln 2), while SP at the rate of more than 32 mask bits keeps every value and has no
    error. So the inequality can be met by tensors of a few hundred elements only.

    >>> round(proof_q2(0.9, 4096))
    197
    """
    if not alpha:
        return 0.0
    # log2(1 + alpha d exp(d / f)), without the overflow of exp.
    natural = math.log(alpha * d) + d / FLOAT_BITS
    return (natural if natural > 50 else math.log1p(math.exp(natural))) / math.log(2)


@dataclass(frozen=True)
class Conditions:
    """Theorem 3 for one tensor: whether its conditions hold, and whether its conclusions do."""

    alpha: float
    alpha_below_half: bool
    """The condition on alpha."""
    proof_covers: bool
    """alpha sqrt(1 - k2/d) <= 2^(-1 - f k2/d): what the proof needs, with k2/d as it is and not 0."""
    ms_below_qu: bool
    """The bound of MS is below that of QU at the same rate."""
    ms_below_sp: bool
    """The bound of MS is below that of SP at the same rate."""
    q2_for_sp: int | None
    """The smallest q2 at which the bound of MS is below that of SP, with the same k2; None if none is."""


def conditions(alpha: float, d: int, k2: int, q2: int) -> Conditions:
    """Check Theorem 3 at the rate q1 d = q2 d + f k2 = d + f k1."""
    if not (0 <= alpha <= 1 and 1 <= k2 <= d and q2 >= 1):
        raise InputError(f"alpha={alpha}, d={d}, k2={k2}, q2={q2}: expected 0..1, 1 <= k2 <= d and q2 >= 1")
    q1 = q2 + FLOAT_BITS * k2 / d
    narrowest = next((q for q in range(1, FLOAT_BITS + 1) if _below_sp(alpha, d, k2, q)), None)
    return Conditions(
        alpha=alpha,
        alpha_below_half=0 < alpha < 0.5,
        proof_covers=alpha * math.sqrt(1 - k2 / d) <= 2.0 ** (-1 - FLOAT_BITS * k2 / d),
        ms_below_qu=bound_ms(d, k2, q2, alpha) <= bound_qu(d, q1),
        ms_below_sp=_below_sp(alpha, d, k2, q2),
        q2_for_sp=narrowest,
    )


def _below_sp(alpha: float, d: int, k2: int, q2: int) -> bool:
    k1 = k2 + (q2 - 1) * d / FLOAT_BITS
    # At 33 bits and more SP would keep everything and have no error.
    return k1 < d and bound_ms(d, k2, q2, alpha) <= bound_sp(d, k1)
