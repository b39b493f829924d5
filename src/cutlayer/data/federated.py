"""The data of a federated run: both splits, and which client has which training samples."""

from dataclasses import dataclass

from cutlayer.data.augment import Augment
from cutlayer.data.form import DataSource
from cutlayer.data.partition import Partition


@dataclass(frozen=True)
class FederatedData:
    """A train and a test split, how samples are augmented, and the training samples of each client."""

    train: DataSource
    test: DataSource
    augment: Augment
    parts: Partition
