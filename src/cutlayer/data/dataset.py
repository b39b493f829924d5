"""A data set in memory with class numbers: images decoded once, labels, and how many classes there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from cutlayer.data.form import DataForm, Statistics
from cutlayer.errors import DataError


def check_labels(labels: Tensor, classes: int, where: Callable[[int], str]) -> None:
    """Refuse labels outside 0..classes-1, naming the first bad record through `where(index)`."""
    bad = (labels < 0) | (labels >= classes)
    if bool(bad.any()):
        first = int(bad.nonzero()[0, 0])
        raise DataError(
            f"{where(first)} has label {int(labels[first])}, outside 0..{classes - 1} "
            f"({int(bad.sum())} such labels in all); correct the labels or the number of classes"
        )


@dataclass(frozen=True, eq=False)
class Dataset:
    """One split, train or test, of a data set.

    `images` is uint8 [N, C, H, W], or float32 [N, ...] for features that are used as they are.
    `labels` is int64 [N]. `name` selects known statistics and augmentations ("cifar10"); leave it
    at "custom" when there are none.

        Dataset(images=torch.rand(100, 20), labels=torch.randint(3, (100,)), classes=3)
    """

    images: Tensor
    labels: Tensor
    classes: int
    class_names: tuple[str, ...] | None = None
    name: str = "custom"

    def __post_init__(self) -> None:
        """Check everything here, once: no later stage has to doubt a data set."""
        images, labels = self.images, self.labels
        if images.dtype == torch.uint8:
            if images.dim() != 4:
                raise DataError(f"{self.name}: uint8 images must be [N, C, H, W], not {list(images.shape)}")
        elif images.dtype != torch.float32 or images.dim() < 2:
            raise DataError(
                f"{self.name}: images must be uint8 [N, C, H, W] or float32 [N, ...], "
                f"not {images.dtype} {list(images.shape)}"
            )
        if labels.dtype != torch.int64 or labels.dim() != 1:
            raise DataError(
                f"{self.name}: labels must be int64 [N], not {labels.dtype} {list(labels.shape)}; "
                "convert class numbers with .long()"
            )
        if len(images) != len(labels):
            raise DataError(
                f"{self.name}: {len(images)} inputs but {len(labels)} targets; each input needs one"
            )
        if images.numel() == 0:
            raise DataError(
                f"{self.name}: the split is empty (images {list(images.shape)}); "
                "each split needs at least one sample"
            )
        if self.classes < 1:
            raise DataError(f"{self.name}: classes must be at least 1, not {self.classes}")
        if self.class_names is not None and len(self.class_names) != self.classes:
            raise DataError(f"{self.name}: {len(self.class_names)} class names for {self.classes} classes")
        check_labels(labels, self.classes, lambda i: f"{self.name}: sample {i}")
        if images.dtype == torch.float32:
            finite = torch.isfinite(images.flatten(1)).all(1)
            if not bool(finite.all()):
                first = int((~finite).nonzero()[0, 0])
                raise DataError(f"{self.name}: sample {first} holds NaN or infinity")

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample, [C, H, W] for images."""
        return tuple(self.images.shape[1:])

    @property
    def statistics(self) -> Statistics | None:
        """See `DataSource.statistics`."""
        return None

    @cached_property
    def form(self) -> DataForm:
        """See `DataSource.form`."""
        return DataForm.of(self.images[:1], self.labels[:1], classes=self.classes)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """See `DataSource.batch`."""
        return self.images[indices], self.labels[indices]

    def select(self, indices: Tensor) -> Dataset:
        """Return a data set of the given samples, in the given order."""
        return replace(self, images=self.images[indices], labels=self.labels[indices])
