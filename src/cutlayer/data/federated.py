"""The data of a federated run: both splits, and which client has which training samples."""

from dataclasses import dataclass

from cutlayer.data.augment import Augment
from cutlayer.data.dataset import Dataset
from cutlayer.data.partition import Partition


@dataclass(frozen=True)
class FederatedData:
    """A train and a test split, how samples are augmented, and the training samples of each client."""

    train: Dataset
    test: Dataset
    augment: Augment
    parts: Partition
