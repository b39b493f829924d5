"""Partitions are disjoint, complete, seeded, and leave no client without samples."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cutlayer.data import PARTITIONS, by_shard, dirichlet, even, partition, summary
from cutlayer.errors import DataError

label_lists = st.lists(st.integers(0, 6), min_size=1, max_size=200)
seeds = st.integers(0, 2**40)


def check(parts: tuple[Tensor, ...], labels: Tensor, clients: int) -> None:
    assert len(parts) == clients
    assert all(len(part) > 0 for part in parts)
    assert torch.cat(parts).sort().values.tolist() == list(range(len(labels)))
    rows = summary(parts, labels, 7)
    assert [sum(row) for row in rows] == [len(part) for part in parts]
    assert [sum(column) for column in zip(*rows, strict=True)] == torch.bincount(labels, minlength=7).tolist()


@given(label_lists, seeds, st.data())
def test_even(values: list[int], seed: int, data: st.DataObject) -> None:
    labels = torch.tensor(values)
    clients = data.draw(st.integers(1, len(labels)))
    parts = even(labels, clients, seed)
    check(parts, labels, clients)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(label_lists, seeds, st.floats(1e-320, 1e300, allow_subnormal=True), st.data())
def test_dirichlet(values: list[int], seed: int, alpha: float, data: st.DataObject) -> None:
    labels = torch.tensor(values)
    clients = data.draw(st.integers(1, len(labels)))
    parts = dirichlet(labels, clients, seed, alpha)
    check(parts, labels, clients)
    again = dirichlet(labels, clients, seed, alpha)
    assert all(torch.equal(a, b) for a, b in zip(parts, again, strict=True))


@given(label_lists, seeds, st.data())
def test_by_shard(values: list[int], seed: int, data: st.DataObject) -> None:
    labels = torch.tensor(values)
    clients = data.draw(st.integers(1, len(labels)))
    shards = data.draw(st.integers(1, len(labels) // clients))
    check(by_shard(labels, clients, seed, shards), labels, clients)


LABELS = torch.arange(10).repeat_interleave(100)


def classes_seen(parts: tuple[Tensor, ...]) -> float:
    rows = summary(parts, LABELS, 10)
    return sum(sum(count > 0 for count in row) for row in rows) / len(rows)


def test_partitions_differ_as_their_names_say() -> None:
    assert classes_seen(even(LABELS, 10, 0)) > 9.9
    assert classes_seen(dirichlet(LABELS, 10, 0, 1000.0)) > 9.9
    assert classes_seen(dirichlet(LABELS, 10, 0, 0.05)) < 5
    assert classes_seen(by_shard(LABELS, 10, 0, 2)) <= 2


def test_dirichlet_shares_have_the_mean_of_the_law() -> None:
    sizes = torch.tensor([[len(p) for p in dirichlet(LABELS, 5, seed, 1.0)] for seed in range(200)]).double()
    assert torch.allclose(sizes.mean(0), torch.full((5,), 200.0).double(), rtol=0.06)


def test_seed_changes_the_parts() -> None:
    for spec in ("even", "dirichlet:alpha=0.5", "shard:shards=2"):
        first, second = partition(spec, LABELS, 4, 0), partition(spec, LABELS, 4, 1)
        assert not all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_thousand_clients_of_a_skewed_draw() -> None:
    labels = torch.arange(10).repeat_interleave(120)
    parts = dirichlet(labels, 1000, 0, 0.001)
    assert min(map(len, parts)) == 1
    assert sum(map(len, parts)) == 1200


def test_spec_strings() -> None:
    assert set(PARTITIONS) == {"even", "contiguous", "dirichlet", "shard"}
    by_name = partition("dirichlet:alpha=0.3", LABELS, 4, 7)
    assert all(torch.equal(a, b) for a, b in zip(by_name, dirichlet(LABELS, 4, 7, 0.3), strict=True))


@pytest.mark.parametrize(
    ("spec", "clients", "message"),
    [
        ("even", 1001, "1001 clients but only 1000 samples"),
        ("even", 0, "at least 1 client"),
        ("dirichlet:alpha=0", 4, "positive"),
        ("dirichlet:alpha=nan", 4, "positive"),
        ("dirichlet:alpha=inf", 4, "positive"),
        ("dirichlet:alpha=much", 4, "could not convert"),
        ("dirichlet", 4, "written like 'dirichlet:alpha=0.5'"),
        ("even:alpha=1", 4, "written like 'even'"),
        ("shard:shards=0", 4, "at least 1"),
        ("shard:shards=600", 4, "need 2400 samples, there are 1000"),
        ("random", 4, "choose from even, contiguous, dirichlet, shard"),
    ],
)
def test_bad_specs(spec: str, clients: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        partition(spec, LABELS, clients, 0)
