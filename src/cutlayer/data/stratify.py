"""Choose samples so that each class keeps its share: held-out test sets and small subsets."""

from __future__ import annotations

import torch
from torch import Tensor

from cutlayer.data.form import DataSource
from cutlayer.data.load_options import Split
from cutlayer.errors import DataError
from cutlayer.seeding import generator


def stratified(labels: Tensor, count: int, seed: int) -> Tensor:
    """Return `count` sample indices, ascending, with each class at its share of `labels`.

    Each sample gets the place it has in its shuffled class, as a fraction of that class, and the
    `count` smallest are taken: a class of n gives n * count / N rounded up or down. The random
    offset per class decides fairly among classes too small to give a whole sample.
    """
    rng = generator("stratify", seed)
    order = torch.randperm(len(labels), generator=rng)
    by_class = order[labels[order].argsort(stable=True)]
    label = labels[by_class]
    counts = torch.bincount(labels)
    rank = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[label]
    offset = torch.rand(len(counts), generator=rng, dtype=torch.float64)
    place = (rank + offset[label]) / counts[label]
    return by_class[place.argsort(stable=True)[:count]].sort().values


def hold_out(labels: Tensor, split: Split, fraction: float, seed: int, where: str) -> Tensor:
    """Return the indices of one split of data that come without a test part of their own."""
    count = max(1, round(fraction * len(labels)))
    if count >= len(labels):
        raise DataError(
            f"{where}: {len(labels)} sample(s) cannot be split into train and test with "
            f"test_fraction={fraction}; add data or lower the fraction"
        )
    test = stratified(labels, count, seed)
    if split == "test":
        return test
    keep = torch.ones(len(labels), dtype=torch.bool)
    keep[test] = False
    return keep.nonzero().flatten()


def hold_out_any(data: DataSource, split: Split, fraction: float, seed: int, where: str) -> Tensor:
    """As `hold_out`, for targets of any kind: where they are not classes, any sample may be chosen."""
    return hold_out(classes_or_zeros(data), split, fraction, seed, where)


def classes_or_zeros(data: DataSource) -> Tensor:
    """The class of each sample; where targets are not classes, all are of one."""
    return torch.zeros(len(data), dtype=torch.int64) if data.labels is None else data.labels
