"""Data sets: loaded once into uint8, partitioned among clients, sampled and augmented reproducibly.

What a client sees at a step is a function of (seed, client, epoch, step). Nothing here knows models, codecs,
settings or the network.
"""

from cutlayer.data.augment import AUGMENTATIONS, Augment
from cutlayer.data.dataset import Dataset
from cutlayer.data.federated import FederatedData
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
from cutlayer.data.spec import DataSpec

__all__ = [
    "AUGMENTATIONS",
    "LOADERS",
    "PARTITIONS",
    "Augment",
    "DataSpec",
    "Dataset",
    "FederatedData",
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
