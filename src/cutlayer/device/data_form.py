"""What samples look like, as an ONNX half says it: shape, classes, normalization. Checked, value by value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cutlayer.errors import DataError

# The same bounds as a server has for the data of its clients.
MOST_VALUES = 1 << 22
MOST_CLASSES = 1 << 16
LONGEST_NAME = 256
SMALLEST_STD = 1e-9
LARGEST_FEATURE = 1e12
AUGMENTATIONS = ("none", "crop-flip", "shift-flip", "resized-crop-flip")


@dataclass(frozen=True)
class DataForm:
    """What a half needs to know of its data."""

    name: str
    shape: tuple[int, ...]
    pixels: bool
    """Whether samples are uint8 images; otherwise float32 features, which are standardised."""
    classes: int
    class_names: tuple[str, ...] | None
    augment: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int | None
    """The side to which images are cut at the centre."""

    @staticmethod
    def parse(found: Mapping[str, Any]) -> DataForm:
        """From JSON of somebody else. Raises ValueError, KeyError or TypeError if it cannot be."""
        names, size = found["class_names"], found["size"]
        pixels = flag(found["pixels"])
        low, high = (0.0, 1.0) if pixels else (-LARGEST_FEATURE, LARGEST_FEATURE)
        form = DataForm(
            name=text(found["name"]),
            shape=whole_numbers(found["shape"], 1, MOST_VALUES, most=8),
            pixels=pixels,
            classes=whole_number(found["classes"], 1, MOST_CLASSES),
            class_names=None if names is None else tuple(text(name) for name in items(names, MOST_CLASSES)),
            augment=text(found["augment"]),
            mean=tuple(number(v, low, high) for v in items(found["mean"], MOST_VALUES)),
            std=tuple(number(v, SMALLEST_STD, high) for v in items(found["std"], MOST_VALUES)),
            size=None if size is None else whole_number(size, 1, MOST_VALUES),
        )
        if not form.shape or math.prod(form.shape) > MOST_VALUES or (form.pixels and len(form.shape) != 3):
            raise ValueError(f"samples cannot have the shape {list(form.shape)}")
        if form.class_names is not None and len(form.class_names) != form.classes:
            raise ValueError(f"{len(form.class_names)} class names for {form.classes} classes")
        if not len(form.mean) == len(form.std) == form.shape[0]:
            raise ValueError(
                f"{len(form.mean)} means and {len(form.std)} deviations for {form.shape[0]} channels"
            )
        if form.augment not in AUGMENTATIONS:
            raise ValueError(f"no augmentation {form.augment!r}")
        if form.size is not None and (len(form.shape) != 3 or form.size > min(form.shape[1:])):
            raise ValueError(f"samples of shape {list(form.shape)} cannot be cut to a side of {form.size}")
        return form

    @property
    def dtype(self) -> Any:
        """The type of samples."""
        return np.dtype(np.uint8 if self.pixels else np.float32)

    def check(self, images: Any) -> Any:
        """Samples as an array, if they have this form; DataError if not."""
        found = images if isinstance(images, np.ndarray) else np.asarray(images)
        if found.ndim == 0 or found.shape[1:] != self.shape:
            raise DataError(
                f"samples have the shape {list(found.shape[1:])}, but the model takes {list(self.shape)}"
            )
        if found.dtype != self.dtype:
            raise DataError(f"samples are of the type {found.dtype}, but the model takes {self.dtype}")
        return np.ascontiguousarray(found)


def text(value: Any) -> str:
    """A short text that cannot move the cursor of a terminal."""
    if (
        not isinstance(value, str)
        or len(value) > LONGEST_NAME
        or any(ord(c) < 32 or 127 <= ord(c) < 160 for c in value)
    ):
        raise ValueError(f"a name has at most {LONGEST_NAME} characters, and no control characters")
    return value


def flag(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise TypeError(f"{str(value)[:40]!r} is neither true nor false")
    return value


def whole_number(value: Any, low: int, high: int) -> int:
    """An integer in a range."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{str(value)[:40]} is no whole number from {low} to {high}")
    return value


def whole_numbers(value: Any, low: int, high: int, most: int) -> tuple[int, ...]:
    """At most so many integers in a range."""
    return tuple(whole_number(each, low, high) for each in items(value, most))


def number(value: Any, low: float, high: float) -> float:
    """A number in a range."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ValueError(f"{str(value)[:40]} is no number from {low:g} to {high:g}")
    return float(value)


def items(value: Any, most: int) -> list[Any]:
    """A list of at most so many items."""
    if not isinstance(value, list) or len(value) > most:
        raise ValueError(f"expected a list of at most {most:,} items")
    return value
