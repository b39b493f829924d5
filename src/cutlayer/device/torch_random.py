"""The random numbers that PyTorch draws on the CPU, without PyTorch: same seed, same numbers.

So a device trains on the batches, augmented in the same way, on which a client with PyTorch would train in
its place. PyTorch's generator is a Mersenne Twister (MT19937), which NumPy has as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_FRACTION_BITS = 24  # of a float32 between 0 and 1


class Generator:
    """As `torch.Generator().manual_seed(seed)`."""

    def __init__(self, seed: int) -> None:
        self._state = np.random.RandomState(seed & 0xFFFFFFFF)

    def _words(self, n: int) -> Any:
        return self._state.randint(0, 1 << 32, size=n, dtype=np.uint32)

    def permutation(self, n: int) -> Any:
        """As `torch.randperm`: a Fisher-Yates shuffle."""
        order = list(range(n))
        for i, word in enumerate(self._words(max(0, n - 1)).tolist()):
            j = i + word % (n - i)
            order[i], order[j] = order[j], order[i]
        return np.array(order, np.int64)

    def integers(self, high: int, n: int) -> Any:
        """As `torch.randint(high, (n,))`."""
        return (self._words(n) % np.uint32(high)).astype(np.int64)

    def fractions(self, n: int) -> Any:
        """As `torch.rand(n)`."""
        return (self._words(n) & np.uint32((1 << _FRACTION_BITS) - 1)).astype(np.float32) * np.float32(
            2.0**-_FRACTION_BITS
        )
