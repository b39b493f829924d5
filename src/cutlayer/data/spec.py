"""The data spec of a run: what a trained model needs to know of its data to be used without them.

A run directory holds it in `data.json`: shape, classes, normalization, and the number of samples of each
client. With it a model can be rebuilt, exported and used on a machine that never had the training data.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from cutlayer.data.augment import Augment
from cutlayer.data.dataset import Dataset
from cutlayer.data.federated import FederatedData
from cutlayer.data.known_datasets import Statistics
from cutlayer.errors import FileError
from cutlayer.files import write_atomically

DATA_SPEC_FILE = "data.json"


@dataclass(frozen=True)
class DataSpec:
    """What a model needs to know of the data that it was trained on."""

    name: str
    shape: tuple[int, ...]
    pixels: bool
    """Whether samples are uint8 images; otherwise float32 features, used as they are."""
    classes: int
    class_names: tuple[str, ...] | None
    augment: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int | None
    samples: tuple[int, ...]
    """How many each client has."""

    @staticmethod
    def of(data: FederatedData) -> DataSpec:
        """The spec of these data."""
        train, augment = data.train, data.augment
        return DataSpec(
            name=train.name,
            shape=train.shape,
            pixels=train.images.dtype == torch.uint8,
            classes=train.classes,
            class_names=train.class_names,
            augment=augment.name,
            mean=augment.statistics.mean,
            std=augment.statistics.std,
            size=augment.size,
            samples=tuple(len(part) for part in data.parts),
        )

    def write(self, directory: str | Path) -> None:
        """Write `data.json` into a run directory."""
        write_atomically(Path(directory, DATA_SPEC_FILE), json.dumps(asdict(self), indent=2) + "\n")

    @staticmethod
    def read(directory: str | Path) -> DataSpec:
        """Read the `data.json` of a run directory."""
        path = Path(directory, DATA_SPEC_FILE)
        try:
            return DataSpec.parse(json.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise FileError(f"{path}: cannot be read ({error.strerror}); is {directory} a run?") from error
        except (ValueError, TypeError, AttributeError) as error:
            raise FileError(f"{path}: is damaged ({error})") from error

    @staticmethod
    def parse(found: dict[str, Any]) -> DataSpec:
        """The spec from plain JSON."""
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in found.items()}
        return DataSpec(**values)

    def preprocess(self) -> Augment:
        """What turns stored samples into what the model takes."""
        return Augment(self.augment, Statistics(self.mean, self.std), self.size)

    def placeholder_data(self) -> FederatedData:
        """Blank data of the same shape, classes and part sizes.

        However many samples the clients have, one stands for all of them, and takes the memory of one.
        """
        blank = torch.zeros(1, *self.shape, dtype=torch.uint8 if self.pixels else torch.float32)
        label = torch.zeros(1, dtype=torch.int64)
        train = Dataset(blank, label, self.classes, self.class_names, self.name)
        parts = tuple(label.expand(count) for count in self.samples)
        return FederatedData(train, train, self.preprocess(), parts)
