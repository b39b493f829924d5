"""The data spec of a run: what a trained model needs to know of its data to be used without them.

A run directory holds it in `data.json`: shape, classes, normalization, and the number of samples of each
client. With it a model can be rebuilt, exported and used on a machine that never had the training data.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from cutlayer.data.arrays import ArrayDataset
from cutlayer.data.augment import Augment
from cutlayer.data.dataset import Dataset
from cutlayer.data.federated import FederatedData
from cutlayer.data.form import DataForm, DataSource, Statistics, TensorForm
from cutlayer.errors import FileError
from cutlayer.files import write_atomically
from cutlayer.plain_json import from_json

DATA_SPEC_FILE = "data.json"


@dataclass(frozen=True)
class DataSpec:
    """What a model needs to know of the data that it was trained on."""

    name: str
    shape: tuple[int, ...]
    pixels: bool
    """Whether samples are uint8 images; otherwise `inputs` says, or they are float32 features."""
    classes: int
    """How many outputs the model has: classes, labels, the vocabulary, or the floats of a target."""
    class_names: tuple[str, ...] | None
    augment: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int | None
    samples: tuple[int, ...]
    """How many each client has."""
    inputs: tuple[TensorForm, ...] = ()
    """What a sample consists of, where that is more than an image or features and a class number."""
    container: Literal["tensor", "tuple", "dict"] = "tensor"
    target: TensorForm | None = None

    @property
    def form(self) -> DataForm:
        """The form of the data."""
        if self.target is not None:
            return DataForm(self.inputs, self.target, self.container)
        sample = TensorForm("uint8" if self.pixels else "float32", self.shape)
        return DataForm((sample,), TensorForm("int64", (), self.classes))

    @staticmethod
    def of(data: FederatedData) -> DataSpec:
        """The spec of these data."""
        train, augment, form = data.train, data.augment, data.train.form
        return DataSpec(
            name=train.name,
            shape=train.shape,
            pixels=form.pixels,
            classes=form.outputs,
            class_names=train.class_names,
            augment=augment.name,
            mean=augment.statistics.mean,
            std=augment.statistics.std,
            size=augment.size,
            samples=tuple(len(part) for part in data.parts),
            inputs=() if form.plain else form.inputs,
            container=form.container,
            target=None if form.plain else form.target,
        )

    def write(self, directory: str | Path) -> None:
        """Write `data.json` into a run directory."""
        write_atomically(Path(directory, DATA_SPEC_FILE), json.dumps(asdict(self), indent=2) + "\n")

    @staticmethod
    def read(directory: str | Path) -> DataSpec:
        """Read the `data.json` of a run directory."""
        path = Path(directory, DATA_SPEC_FILE)
        try:
            return DataSpec.parse(from_json(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise FileError(f"{path}: cannot be read ({error.strerror}); is {directory} a run?") from error
        except (ValueError, TypeError, AttributeError) as error:
            raise FileError(f"{path}: is damaged ({error})") from error

    @staticmethod
    def parse(found: dict[str, Any]) -> DataSpec:
        """The spec from plain JSON."""
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in found.items()}
        if values.get("target") is not None:
            values["target"] = TensorForm.parse(values["target"])
            values["inputs"] = tuple(TensorForm.parse(entry) for entry in values["inputs"])
        return DataSpec(**values)

    def preprocess(self) -> Augment:
        """What turns stored samples into what the model takes."""
        return Augment(self.augment, Statistics(self.mean, self.std), self.size)

    def placeholder_data(self) -> FederatedData:
        """Blank data of the same form and part sizes.

        However many samples the clients have, one stands for all of them, and takes the memory of one.
        """
        inputs, targets = self.form.zeros(1)
        train: DataSource
        if isinstance(inputs, torch.Tensor) and self.form.plain:
            train = Dataset(inputs, targets, self.classes, self.class_names, self.name)
        else:
            values = max((form.values for form in self.inputs), default=0)
            train = ArrayDataset(
                inputs,
                targets,
                self.form.target.values,
                values,
                class_names=self.class_names,
                name=self.name,
            )
        index = torch.zeros(1, dtype=torch.int64)
        parts = tuple(index.expand(count) for count in self.samples)
        return FederatedData(train, train, self.preprocess(), parts)
