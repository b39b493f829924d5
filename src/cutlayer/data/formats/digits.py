"""scikit-learn's digits: 1,797 grey images of 8x8 that come inside a dependency."""

from __future__ import annotations

import torch

from cutlayer.data.dataset import Dataset
from cutlayer.data.load_options import LoadOptions
from cutlayer.data.stratify import hold_out
from cutlayer.imports import need

# Fixed, not a setting: everyone who says "digits" means the same 1,438 and 359 images.
_SPLIT_SEED = 0
_TEST_FRACTION = 0.2

# The pixels are 0..16. Times 15 is the largest whole factor that fits a byte, so it loses nothing.
_SCALE = 15


def load_digits(options: LoadOptions) -> Dataset:
    """Load the train or the test part of digits."""
    table = need("sklearn.datasets", "the digits data set").load_digits()
    images = torch.from_numpy(table.images).mul(_SCALE).to(torch.uint8).unsqueeze(1)
    labels = torch.from_numpy(table.target).long()
    chosen = hold_out(labels, options.split, _TEST_FRACTION, _SPLIT_SEED, "digits")
    return Dataset(
        images=images[chosen],
        labels=labels[chosen],
        classes=10,
        class_names=tuple(str(name) for name in table.target_names),
        name="digits",
    )
