"""Data sets of any kind: loaded or read as needed, partitioned among clients, sampled reproducibly.

What a client sees at a step is a function of (seed, client, epoch, step). Nothing here knows models, codecs,
settings or the network.
"""

from cutlayer.data.arrays import ArrayDataset
from cutlayer.data.augment import AUGMENTATIONS, Augment
from cutlayer.data.dataset import Dataset
from cutlayer.data.federated import FederatedData
from cutlayer.data.form import DataForm, DataSource, Inputs, Statistics, TensorForm
from cutlayer.data.indexed import IndexedDataset
from cutlayer.data.known_datasets import statistics
from cutlayer.data.load import LOADERS, load, load_both
from cutlayer.data.partition import (
    PARTITIONS,
    Partition,
    by_shard,
    dirichlet,
    even,
    partition,
    partition_data,
    summary,
)
from cutlayer.data.sampler import Sampler, permutation, steps_per_epoch
from cutlayer.data.spec import DataSpec
from cutlayer.data.user_dataset import as_dataset

__all__ = [
    "AUGMENTATIONS",
    "LOADERS",
    "PARTITIONS",
    "ArrayDataset",
    "Augment",
    "DataForm",
    "DataSource",
    "DataSpec",
    "Dataset",
    "FederatedData",
    "IndexedDataset",
    "Inputs",
    "Partition",
    "Sampler",
    "Statistics",
    "TensorForm",
    "as_dataset",
    "by_shard",
    "dirichlet",
    "even",
    "load",
    "load_both",
    "partition",
    "partition_data",
    "permutation",
    "statistics",
    "steps_per_epoch",
    "summary",
]
