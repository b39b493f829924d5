"""Data of your own: a function that returns a training set and a test set.

This one makes images up: a bright square on noise. The quarter of the image that it is in is its class.
Replace it by your own. Images are uint8 [N, C, H, W], or float32 [N, ...] for features that are used as they
are. Labels are int64 [N].
"""

import torch

from cutlayer.data import Dataset


def load() -> tuple[Dataset, Dataset]:
    """Training and test data."""
    return _images(800, seed=0), _images(200, seed=1)


def _images(number: int, seed: int) -> Dataset:
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (number,), generator=draw)
    images = torch.randint(0, 140, (number, 1, 8, 8), generator=draw, dtype=torch.uint8)
    for image, label in zip(images, labels.tolist(), strict=True):
        row, column = 4 * (label // 2), 4 * (label % 2)
        image[:, row + 1 : row + 3, column + 1 : column + 3] += 60
    return Dataset(images, labels, classes=4)
