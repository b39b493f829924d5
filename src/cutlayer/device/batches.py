"""The batches of a device: which samples at a step, augmented and normalized as with PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

from cutlayer.device.data_form import DataForm
from cutlayer.device.samples import Samples
from cutlayer.device.torch_random import Generator
from cutlayer.errors import DataError
from cutlayer.seeds import derive

#: The augmentations that are here; the others need PyTorch.
AUGMENTATIONS = ("none", "crop-flip")
_PADDING = 4


class Batches:
    """The training samples of client number `client`, at any epoch and step, in any order."""

    def __init__(
        self, samples: Samples, form: DataForm, batch_size: int, *, seed: int, client: int, drop_last: bool
    ) -> None:
        """`form` has the statistics with which samples are normalized."""
        self.samples, self.form = samples, form
        self.batch_size, self.seed, self.client = batch_size, seed, client
        count = len(samples)
        self.steps = count // batch_size if drop_last else -(-count // batch_size)
        if self.steps == 0:
            raise DataError(
                f"client {client} has {count} samples, which give no batch of {batch_size}; "
                "use a smaller batch, fewer clients, or keep the last partial batch"
            )
        self._cached: tuple[int, Any] | None = None

    def __len__(self) -> int:
        """The steps of an epoch."""
        return self.steps

    def at(self, epoch: int, step: int) -> tuple[Any, Any]:
        """The augmented images and the labels of a step."""
        if not 0 <= step < self.steps:
            raise IndexError(f"step {step} is outside an epoch of {self.steps} steps")
        if self._cached is None or self._cached[0] != epoch:
            rng = Generator(derive("sampler", self.seed, self.client, epoch))
            self._cached = epoch, rng.permutation(len(self.samples))
        chosen = self._cached[1][step * self.batch_size : (step + 1) * self.batch_size]
        images = self.samples.images[chosen]
        if self.form.augment == "crop-flip":
            images = crop_flip(images, Generator(derive("augment", self.seed, self.client, epoch, step)))
        return normalized(images, self.form), self.samples.labels[chosen]


def crop_flip(images: Any, rng: Generator) -> Any:
    """Pad with zeros, cut out the old size at a random place, mirror half of the images."""
    count, _, height, width = images.shape
    padded = np.pad(images, ((0, 0), (0, 0), (_PADDING, _PADDING), (_PADDING, _PADDING)))
    top = rng.integers(2 * _PADDING + 1, count)
    left = rng.integers(2 * _PADDING + 1, count)
    mirror = rng.fractions(count) < 0.5
    across = np.arange(width)
    columns = left[:, None] + np.where(mirror[:, None], across[::-1], across)
    rows = top[:, None] + np.arange(height)
    place = np.arange(count)[:, None, None]
    return padded.transpose(0, 2, 3, 1)[place, rows[:, :, None], columns[:, None, :]].transpose(0, 3, 1, 2)


def normalized(images: Any, form: DataForm) -> Any:
    """Samples as the model takes them, cut to size at the centre."""
    if form.size is not None and images.ndim == 4:
        top, left = (max(0, side - form.size) // 2 for side in images.shape[2:])
        images = images[:, :, top : top + form.size, left : left + form.size]
    if not form.pixels:
        return _standardised(images, form)
    mean, std = (np.array(values, np.float32).reshape(1, -1, 1, 1) for values in (form.mean, form.std))
    # (pixel / 255 - mean) / std, as one multiplication and one addition.
    scaled = np.ascontiguousarray(images, np.float32)
    scaled *= np.float32(1) / (np.float32(255) * std)
    scaled -= mean / std
    return scaled


def _standardised(features: Any, form: DataForm) -> Any:
    """Float features less their means, divided by their deviations."""
    if not any(form.mean) and all(value == 1.0 for value in form.std):
        return np.ascontiguousarray(features)
    shape = (1, -1, *[1] * (features.ndim - 2))
    mean, std = (np.array(values, np.float64).reshape(shape) for values in (form.mean, form.std))
    # In double: a mean may be large beside what varies around it.
    return ((features.astype(np.float64) - mean) / std).astype(np.float32)
