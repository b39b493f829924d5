"""Sampling is a pure function of (seed, client, epoch, step)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cutlayer.data import Sampler, steps_per_epoch
from cutlayer.errors import DataError

numbers = st.integers(0, 2**40)


@given(st.integers(1, 300), st.integers(1, 70), st.booleans(), numbers, numbers, numbers)
def test_epoch_visits_every_sample_once(
    samples: int, size: int, drop_last: bool, seed: int, client: int, epoch: int
) -> None:
    if drop_last and size > samples:
        return
    indices = torch.arange(samples) * 3
    sampler = Sampler(indices, size, seed=seed, client=client, drop_last=drop_last)
    batches = [sampler.batch(epoch, step) for step in range(len(sampler))]
    seen = torch.cat(batches)
    assert len(sampler) == steps_per_epoch(samples, size, drop_last)
    assert all(len(batch) == size for batch in batches[:-1])
    assert len(seen.unique()) == len(seen)
    assert set(seen.tolist()) <= set(indices.tolist())
    assert len(seen) == (samples - samples % size if drop_last else samples)


@given(numbers, st.integers(0, 50), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6))))
def test_any_order_of_asking_gives_the_same(seed: int, client: int, places: list[tuple[int, int]]) -> None:
    indices = torch.arange(100)
    asked = Sampler(indices, 15, seed=seed, client=client)
    for epoch, step in places:
        fresh = Sampler(indices, 15, seed=seed, client=client)
        assert torch.equal(asked.batch(epoch, step), fresh.batch(epoch, step))


def test_seed_client_and_epoch_each_change_the_order() -> None:
    indices = torch.arange(64)
    orders = [
        tuple(Sampler(indices, 64, seed=seed, client=client).batch(epoch, 0).tolist())
        for seed in range(3)
        for client in range(3)
        for epoch in range(3)
    ]
    assert len(set(orders)) == 27


def test_bad_arguments() -> None:
    with pytest.raises(DataError, match="client 3 has 5 samples, which give no batch of 8"):
        Sampler(torch.arange(5), 8, seed=0, client=3, drop_last=True)
    with pytest.raises(DataError, match="batch_size"):
        Sampler(torch.arange(5), 0, seed=0, client=0)
    with pytest.raises(IndexError, match="step 2 is outside an epoch of 2 steps"):
        Sampler(torch.arange(5), 3, seed=0, client=0).batch(0, 2)
