"""The paper's augmentations, and a milder one for short training, on whole batches of tensors.

What happens to a batch is a function of (seed, client, epoch, step) and nothing else. No image is
touched alone: positions are drawn for all images at once and the pixels fetched in one gather.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import overload

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from cutlayer.data.form import DataSource, Inputs, Statistics
from cutlayer.data.known_datasets import KNOWN, statistics
from cutlayer.errors import DataError
from cutlayer.seeding import generator

# CIFAR: zeros on each side before a crop of the old size.
_PADDING = 4

# Short training: an image moves by so many pixels at most, and its border is mirrored.
_SHIFT = 2

# ImageNet: the area and the aspect ratio (width by height) of the part that is cut out.
_AREA = (0.08, 1.0)
_ASPECT = (3 / 4, 4 / 3)
_TRIES = 10


def crop_flip(images: Tensor, size: int | None, rng: Generator) -> Tensor:
    """Pad with zeros, cut out the old size at a random place, mirror half of the images."""
    return _crop_flip(F.pad(images, (_PADDING,) * 4), _PADDING, rng)


def shift_flip(images: Tensor, size: int | None, rng: Generator) -> Tensor:
    """Move by up to two pixels each way, mirroring the border, and mirror half of the images."""
    # Only floating-point tensors can be padded by reflection.
    padded = F.pad(images.to(torch.float32), (_SHIFT,) * 4, mode="reflect")
    return _crop_flip(padded, _SHIFT, rng)


def _crop_flip(padded: Tensor, padding: int, rng: Generator) -> Tensor:
    count, channels, height, width = padded.shape
    height, width = height - 2 * padding, width - 2 * padding
    places = 2 * padding + 1
    top = torch.randint(places, (count, 1), generator=rng)
    left = torch.randint(places, (count, 1), generator=rng)
    mirror = torch.rand(count, 1, generator=rng) < 0.5
    rows = top + torch.arange(height)
    across = torch.arange(width)
    columns = left + torch.where(mirror, across.flip(0), across)
    # One gather does the crop and the mirror; with rows and columns apart it takes four times as
    # long.
    flat = rows[:, :, None] * padded.shape[3] + columns[:, None, :]
    flat = flat.to(padded.device).view(count, 1, -1).expand(-1, channels, -1)
    return padded.flatten(2).gather(2, flat).view(count, channels, height, width)


def resized_crop_flip(images: Tensor, size: int | None, rng: Generator) -> Tensor:
    """Cut out a random part, scale it to `size` x `size`, mirror half of the images."""
    count, _, height, width = images.shape
    size = size or min(height, width)
    high, wide = _random_parts(count, height, width, rng)
    top = (torch.rand(count, generator=rng) * (height - high + 1)).floor()
    left = (torch.rand(count, generator=rng) * (width - wide + 1)).floor()
    mirror = torch.where(torch.rand(count, generator=rng) < 0.5, -1.0, 1.0)
    # The part as an affine map of the target's square [-1, 1] into the image's.
    theta = torch.zeros(count, 2, 3)
    theta[:, 0, 0] = wide / width * mirror
    theta[:, 0, 2] = (2 * left + wide) / width - 1
    theta[:, 1, 1] = high / height
    theta[:, 1, 2] = (2 * top + high) / height - 1
    theta = theta.to(images.device)
    grid = F.affine_grid(theta, [count, images.shape[1], size, size], align_corners=False)
    return F.grid_sample(images.float(), grid, padding_mode="border", align_corners=False)


def _random_parts(count: int, height: int, width: int, rng: Generator) -> tuple[Tensor, Tensor]:
    """Draw heights and widths of parts that fit into the image.

    Ten draws for each image, of which the first that fits counts; if none does, the whole image.
    """
    draws = torch.rand(2, count, _TRIES, generator=rng)
    area = (_AREA[0] + (_AREA[1] - _AREA[0]) * draws[0]) * (height * width)
    low, high = math.log(_ASPECT[0]), math.log(_ASPECT[1])
    aspect = (low + (high - low) * draws[1]).exp()
    tall, wide = (area / aspect).sqrt().round(), (area * aspect).sqrt().round()
    fits = (tall >= 1) & (tall <= height) & (wide >= 1) & (wide <= width)
    first = fits.int().argmax(1, keepdim=True)
    fitting = fits.any(1)
    return (
        torch.where(fitting, tall.gather(1, first)[:, 0], float(height)),
        torch.where(fitting, wide.gather(1, first)[:, 0], float(width)),
    )


def unchanged(images: Tensor, size: int | None, rng: Generator) -> Tensor:
    """Return the images as they are, cut to `size` at the centre."""
    return centre(images, size)


def centre(images: Tensor, size: int | None) -> Tensor:
    """Cut out the centre; images that are no larger stay as they are."""
    if size is None or images.dim() != 4:
        return images
    top, left = (max(0, side - size) // 2 for side in images.shape[2:])
    return images[:, :, top : top + size, left : left + size]


#: Every augmentation by name. Each takes a batch, the side of the result, and a generator.
AUGMENTATIONS: dict[str, Callable[[Tensor, int | None, Generator], Tensor]] = {
    "none": unchanged,
    "crop-flip": crop_flip,
    "shift-flip": shift_flip,
    "resized-crop-flip": resized_crop_flip,
}


@dataclass(frozen=True)
class Augment:
    """Turn batches as they are stored into what the model takes: augmented for training, plain for tests.

    Images are normalized and float features standardised. Everything else is what the model takes already.
    """

    name: str
    statistics: Statistics
    size: int | None = None

    @staticmethod
    def of(train: DataSource, name: str = "auto", size: int | None = None) -> Augment:
        """Return the augmentation of a data set: the paper's, or the one that is named.

        `size` is the side of the result where that differs from the stored images; ImageNet
        stored at 256 is trained at 224.
        """
        known = KNOWN.get(train.name)
        if name == "auto":
            name = known.augmentation if known else "none"
        if name not in AUGMENTATIONS:
            raise DataError(f"no augmentation {name!r}; choose from auto, {', '.join(AUGMENTATIONS)}")
        images = len(train.form.inputs) == 1 and len(train.shape) == 3
        if name != "none" and not images:
            raise DataError(
                f"augmentation {name!r} needs images [C, H, W], {train.name} has samples of "
                f"shape {list(train.shape)}; use augmentation 'none'"
            )
        if name != "none" and len(train.form.target.shape) > 1:
            raise DataError(
                f"augmentation {name!r} moves pixels, and would leave the targets of {train.name}, of shape "
                f"{list(train.form.target.shape)}, where they are; use augmentation 'none'"
            )
        if size is not None and (not images or size > min(train.shape[1:])):
            raise DataError(
                f"samples of shape {list(train.shape)} cannot be cut to {size}x{size}; "
                "load them with a larger size"
            )
        keeps = name in ("crop-flip", "shift-flip")
        if keeps and size is not None and train.shape[1:] != (size, size):
            raise DataError(
                f"augmentation {name!r} keeps the size {train.shape[1]}x{train.shape[2]}; "
                f"load the data with size={size} instead"
            )
        return Augment(name, statistics(train), size)

    @overload
    def train(self, images: Tensor, *, seed: int, client: int, epoch: int, step: int) -> Tensor: ...

    @overload
    def train(self, images: Inputs, *, seed: int, client: int, epoch: int, step: int) -> Inputs: ...

    def train(self, images: Inputs, *, seed: int, client: int, epoch: int, step: int) -> Inputs:
        """Augment and normalize the batch of one step: same arguments, same bits."""
        if not isinstance(images, Tensor):
            return images
        rng = generator("augment", seed, client, epoch, step)
        return self._normalize(AUGMENTATIONS[self.name](images, self.size, rng), images.dtype)

    @overload
    def test(self, images: Tensor) -> Tensor: ...

    @overload
    def test(self, images: Inputs) -> Inputs: ...

    def test(self, images: Inputs) -> Inputs:
        """Normalize a batch, cut to size at the centre."""
        if not isinstance(images, Tensor):
            return images
        return self._normalize(centre(images, self.size), images.dtype)

    def _normalize(self, images: Tensor, stored: torch.dtype) -> Tensor:
        if stored == torch.float32:
            return images if self._identity else self._standardised(images)
        if stored != torch.uint8 or images.dim() != 4:
            return images
        mean, std = (
            torch.tensor(values, device=images.device).view(1, -1, 1, 1)
            for values in (self.statistics.mean, self.statistics.std)
        )
        # (pixel / 255 - mean) / std, as one multiplication and one addition.
        return images.to(torch.float32).mul(1 / (255 * std)).sub_(mean / std)

    @property
    def _identity(self) -> bool:
        return not any(self.statistics.mean) and all(value == 1.0 for value in self.statistics.std)

    def _standardised(self, features: Tensor) -> Tensor:
        # In double: a mean may be large beside what varies around it.
        shape = (1, -1, *[1] * (features.dim() - 2))
        mean, std = (
            torch.tensor(values, dtype=torch.float64, device=features.device).view(shape)
            for values in (self.statistics.mean, self.statistics.std)
        )
        return features.to(torch.float64).sub_(mean).div_(std).to(torch.float32)
