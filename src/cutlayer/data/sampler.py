"""Which samples a client trains on at a step: a pure function of (seed, client, epoch, step)."""

from __future__ import annotations

import torch
from torch import Tensor

from cutlayer.errors import DataError
from cutlayer.seeding import generator


def steps_per_epoch(samples: int, batch_size: int, drop_last: bool = False) -> int:
    """Return how many batches `samples` give; the last may be smaller unless it is dropped."""
    return samples // batch_size if drop_last else -(-samples // batch_size)


def permutation(samples: int, seed: int, client: int, epoch: int) -> Tensor:
    """Return the order in which a client visits its samples in an epoch."""
    return torch.randperm(samples, generator=generator("sampler", seed, client, epoch))


class Sampler:
    """Batches of one client's sample indices, at any epoch and step, in any order.

    Only the order of the epoch last asked for is kept, so a thousand clients cost a thousand
    permutations of their own data and no more.

        sampler = Sampler(parts[client], batch_size=128, seed=0, client=client)
        images = train.images[sampler.batch(epoch=2, step=17)]
    """

    def __init__(
        self, indices: Tensor, batch_size: int, *, seed: int, client: int, drop_last: bool = False
    ) -> None:
        if batch_size < 1:
            raise DataError(f"batch_size must be at least 1, not {batch_size}")
        self.indices = indices
        self.batch_size = batch_size
        self.seed = seed
        self.client = client
        self.steps = steps_per_epoch(len(indices), batch_size, drop_last)
        if self.steps == 0:
            raise DataError(
                f"client {client} has {len(indices)} samples, which give no batch of {batch_size}; "
                "use a smaller batch, fewer clients, or keep the last partial batch"
            )
        self._cached: tuple[int, Tensor] | None = None

    def __len__(self) -> int:
        """Return the steps of an epoch."""
        return self.steps

    def batch(self, epoch: int, step: int) -> Tensor:
        """Return the sample indices of one step."""
        if not 0 <= step < self.steps:
            raise IndexError(f"step {step} is outside an epoch of {self.steps} steps")
        # One read and one write of one attribute: threads that race only repeat work.
        cached = self._cached
        if cached is None or cached[0] != epoch:
            order = permutation(len(self.indices), self.seed, self.client, epoch)
            cached = (epoch, self.indices[order])
            self._cached = cached
        return cached[1][step * self.batch_size : (step + 1) * self.batch_size]
