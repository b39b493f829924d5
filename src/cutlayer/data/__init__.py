"""Data: load once into uint8, share among clients, sample and augment reproducibly."""

from cutlayer.data.augment import AUGMENTATIONS, Augment
from cutlayer.data.dataset import Dataset
from cutlayer.data.known_datasets import Statistics, statistics
from cutlayer.data.load import LOADERS, load, load_both
from cutlayer.data.partition import (
    PARTITIONS,
    Partition,
    by_shard,
    dirichlet,
    even,
    partition,
    summary,
)
from cutlayer.data.sampler import Sampler, permutation, steps_per_epoch

__all__ = [
    "AUGMENTATIONS",
    "LOADERS",
    "PARTITIONS",
    "Augment",
    "Dataset",
    "Partition",
    "Sampler",
    "Statistics",
    "by_shard",
    "dirichlet",
    "even",
    "load",
    "load_both",
    "partition",
    "permutation",
    "statistics",
    "steps_per_epoch",
    "summary",
]
