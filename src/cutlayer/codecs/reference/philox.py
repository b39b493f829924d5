"""Philox4x32-10, a counter-based random generator, and random subsets (FORMAT.md, "Randomness")."""

import torch
from torch import Tensor

_LOW = 0xFFFFFFFF
_GROUP, _LANES = 64, 16


def words(seed: int, stream: int, section: int, first: int, n: int, device: torch.device) -> Tensor:
    """Random 32-bit words, as int64, for the indices first ... first + n - 1."""
    start, end = first // _GROUP, (first + n - 1) // _GROUP + 1
    counter = torch.arange(start * _LANES, end * _LANES, device=device)
    c = [counter & _LOW, counter >> 32, torch.full_like(counter, stream), torch.full_like(counter, section)]
    k0, k1 = seed & _LOW, seed >> 32
    for _ in range(10):
        # The products overflow int64, but their low and high 32 bits are those of uint64.
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [
            ((p1 >> 32) & _LOW) ^ c[1] ^ k0,
            p1 & _LOW,
            ((p0 >> 32) & _LOW) ^ c[3] ^ k1,
            p0 & _LOW,
        ]
        k0, k1 = (k0 + 0x9E3779B9) & _LOW, (k1 + 0xBB67AE85) & _LOW
    # Word w of lane l has index 16 w + l in the group.
    per_group = torch.stack([w.view(-1, _LANES) for w in c], dim=1)
    return per_group.flatten()[first - start * _GROUP :][:n]


def scale_to(low: Tensor, high: Tensor, n: int) -> Tensor:
    """Scale random 64-bit numbers w, given as 32-bit halves, to 0 ... n - 1: floor(w n / 2^64), n < 2^32."""
    # The products overflow int64, but the bits are those of uint64.
    return ((high * n + ((low * n >> 32) & _LOW)) >> 32) & _LOW


def draw(seed: int, stream: int, section: int, m: int, n: int) -> Tensor:
    """A random subset of m of n positions, as booleans."""
    chosen = torch.zeros(n, dtype=torch.bool)
    invert = m > n - m  # then fewer have to be drawn
    wanted, first = n - m if invert else m, 0
    while left := wanted - int(chosen.sum()):
        low, high = words(seed, stream, section, first, 2 * left, chosen.device).view(left, 2).unbind(1)
        chosen[scale_to(low, high, n)] = True
        first += 2 * left
    return ~chosen if invert else chosen
