"""The data sets of the paper: how to recognize, normalize and augment them."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from cutlayer.data.dataset import Dataset
from cutlayer.data.form import DataSource, Statistics


@dataclass(frozen=True)
class Known:
    """Classes, normalization and augmentation of a known data set."""

    classes: int | None  # None: subsets with fewer classes go by the same name
    statistics: Statistics
    augmentation: str


KNOWN = {
    "digits": Known(10, Statistics((0.2875,), (0.3542,)), "none"),
    "cifar10": Known(10, Statistics((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)), "crop-flip"),
    "cifar100": Known(100, Statistics((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)), "crop-flip"),
    "imagenet": Known(None, Statistics((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), "resized-crop-flip"),
}

# How many images that are not in memory are looked at.
_MEASURED = 4096

_CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck"
_WORDNET = re.compile(r"n\d{8}")


def identify(class_names: tuple[str, ...] | None) -> str | None:
    """Recognize a data set by its class names, whatever container it comes in."""
    if not class_names:
        return None
    names = list(class_names)
    if " ".join(names) == _CIFAR10:
        return "cifar10"
    if len(names) == 100 and (names[0], names[-1]) == ("apple", "worm"):
        return "cifar100"
    # By WordNet ids in folders; on the hub by words, in the order of the ids.
    if all(_WORDNET.fullmatch(name) for name in names):
        return "imagenet"
    if len(names) == 1000 and names[0].startswith("tench"):
        return "imagenet"
    return None


def statistics(train: DataSource) -> Statistics:
    """Return the statistics to normalize with: published ones, or those of the training images.

    Features are used as they are, their maker has scaled them, unless the data come with statistics.
    """
    if train.statistics is not None:
        return train.statistics
    channels = train.form.channels
    if not train.form.pixels:
        return Statistics((0.0,) * channels, (1.0,) * channels)
    known = KNOWN.get(train.name)
    if known is not None and len(known.statistics.mean) == channels:
        return known.statistics
    return measure(train)


def measure(train: DataSource) -> Statistics:
    """Compute the statistics of uint8 images from counts of the 256 values, which are exact.

    Of images that are decoded each time they are asked for, some thousands stand for all.
    """
    channels = train.form.channels
    counts = torch.zeros(channels, 256, dtype=torch.float64)
    indices = torch.arange(len(train))
    if not isinstance(train, Dataset):
        indices = indices[:: -(-len(train) // _MEASURED)]
    # In pieces: images may be a mapped file larger than memory.
    for piece in torch.split(indices, 1024):
        images = train.batch(piece)[0]
        if not isinstance(images, Tensor):
            raise TypeError("only single tensors are images")
        for channel in range(channels):
            counts[channel] += torch.bincount(images[:, channel].flatten(), minlength=256)
    share = counts / counts.sum(1, keepdim=True)
    value = torch.arange(256, dtype=torch.float64) / 255
    mean = share @ value
    std = (share * (value - mean[:, None]).square()).sum(1).sqrt()
    # A channel of one value has nothing to scale.
    std[std == 0] = 1.0
    return Statistics(tuple(mean.tolist()), tuple(std.tolist()))
