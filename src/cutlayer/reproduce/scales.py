"""How large an experiment is: seconds for tests, minutes on a laptop, or the paper's own recipes.

An image set names the images whose feature maps are compressed, and the model that makes them, which is
trained without compression and kept under `<out>/models/`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from cutlayer.config.recipes import RECIPES


class Scale(StrEnum):
    """smoke: seconds, digits. laptop: thin models on real images. paper: full recipes, for a GPU."""

    SMOKE = "smoke"
    LAPTOP = "laptop"
    PAPER = "paper"


class GridScale(StrEnum):
    """The scales of runs that train: those above, testbed: a small model trained to the end, and proxy: a
    thinner one with fewer epochs, of which there is time for many seeds."""

    SMOKE = "smoke"
    LAPTOP = "laptop"
    PROXY = "proxy"
    TESTBED = "testbed"
    PAPER = "paper"


@dataclass(frozen=True)
class ImageSet:
    """Images, and the model whose feature maps of them are compressed."""

    name: str
    source: str
    """A data set's name, or a folder under the root."""
    trained_on: str
    """The key of the model in `MODELS`; another one than the images' own where these are too few."""
    size: int | None = None
    """Images are scaled to this; the models are convolutional and take any size."""
    batch: int = 128
    batches: int = 4
    """Feature maps are those of so many batches."""
    limit: int | None = None
    """Decode only so many images, where there are more than fit into memory."""
    labelled: bool = True
    """Whether labels are those of the model, so that there are losses and gradients."""

    def place(self, root: Path) -> str:
        """What `data.load` and a configuration take for `source`."""
        return str(root / self.source) if (root / self.source).exists() else self.source


_THIN: dict[str, Any] = {
    "clients": 1,
    "batch_size": 128,
    "epochs": 2,
    "lr": 0.1,
    "momentum": 0.9,
    "nesterov": True,
    "weight_decay": 5e-4,
    "schedule": "cosine",
}


def _paper(name: str) -> dict[str, Any]:
    settings = copy.deepcopy(RECIPES[f"paper/{name}-medium-none"])
    return {key: settings[key] for key in ("model", "data", "train")}


# Settings of the runs that train the models; where the images lie is filled in by `models.py`.
MODELS: dict[str, dict[str, Any]] = {
    "smoke-digits": {
        "model": {"name": "tiny", "width": 8},
        "data": {"source": "digits", "limit": 400},
        "train": {"clients": 1, "batch_size": 32, "epochs": 2, "lr": 0.05},
    },
    "laptop-cifar10": {
        "model": {"name": "resnet18", "width": 16},
        "data": {"source": "cifar10", "limit": 25_000},
        "train": _THIN,
    },
    "laptop-tiny-imagenet-50": {
        "model": {"name": "resnet18", "width": 16},
        "data": {"source": "tiny-imagenet-50", "limit": 10_000, "augment": "crop-flip"},
        "train": _THIN,
    },
    "paper-cifar10": _paper("vgg19-cifar10"),
    "paper-cifar100": _paper("resnet18-cifar100"),
    "paper-imagenet": _paper("resnet34-imagenet"),
}

IMAGE_SETS: dict[Scale, tuple[ImageSet, ...]] = {
    Scale.SMOKE: (ImageSet("digits", "digits", "smoke-digits", batch=32, batches=2),),
    Scale.LAPTOP: (
        ImageSet("CIFAR-10", "cifar10", "laptop-cifar10"),
        ImageSet("Tiny-ImageNet-50", "tiny-imagenet-50", "laptop-tiny-imagenet-50", batch=64),
        # One photo a class cannot train a model: features of the model of the set before, at twice its size.
        ImageSet(
            "ImageNet samples", "imagenet-samples", "laptop-tiny-imagenet-50", 128, batch=32, labelled=False
        ),
    ),
    Scale.PAPER: (
        ImageSet("CIFAR-10", "cifar10", "paper-cifar10"),
        ImageSet("CIFAR-100", "cifar100", "paper-cifar100"),
        ImageSet("ImageNet-1K", "imagenet", "paper-imagenet", 224, batch=32, limit=20_000),
    ),
}
