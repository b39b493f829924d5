"""Segmentation: a target is a class for each pixel; cross-entropy; mean IoU and pixel accuracy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from cutlayer.errors import DataError, TaskError
from cutlayer.tasks.base import Integers, Target, Task, expect_shape, tensor_of
from cutlayer.tasks.metric import Metric

_IGNORED = -100


@dataclass(frozen=True)
class Masks:
    """Masks of classes, packed; pixels to be ignored travel as one more class and arrive as -100."""

    classes: int
    shape: tuple[int, ...]
    ignore: int | None = None

    def pack(self, targets: Tensor) -> bytes:
        """See `TargetCodec.pack`."""
        if self.ignore is not None:
            inside = (targets >= 0) & (targets < self.classes)
            if not bool((inside | (targets == self.ignore)).all()):
                raise DataError(
                    f"a mask has values beside 0 to {self.classes - 1} and {self.ignore}, which is ignored"
                )
            targets = torch.where(targets == self.ignore, self.classes, targets)
        return self._codes.pack(targets)

    def unpack(self, data: bytes, count: int) -> Tensor:
        """See `TargetCodec.unpack`."""
        found = self._codes.unpack(data, count)
        return found if self.ignore is None else found.masked_fill_(found == self.classes, _IGNORED)

    def size(self, count: int) -> int:
        """See `TargetCodec.size`."""
        return self._codes.size(count)

    @property
    def _codes(self) -> Integers:
        return Integers(self.classes + (self.ignore is not None), self.shape)


@dataclass(frozen=True)
class Segmentation(Task):
    """A class of `classes` for each pixel of a mask of that shape; outputs are [N, classes, *shape]."""

    name: ClassVar[str] = "segmentation"
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("mean_iou", percent=True),
        Metric("pixel_accuracy", percent=True),
    )

    classes: int
    shape: tuple[int, ...]
    ignore: int | None = None
    """A value of masks that counts for nothing, such as 255 for what nobody labelled."""

    @classmethod
    def of(cls, target: Target, **options: Any) -> Self:
        """The task for such targets. A value to be ignored is no class, if it is the last one."""
        if target.kind != "integers" or not target.shape:
            raise TaskError(f"segmentation needs a class for each pixel; the data have {target.describe()}")
        return cls(target.values, target.shape, **options)

    @cached_property
    def targets(self) -> Masks:  # type: ignore[override]
        """See `Task.targets`."""
        return Masks(self.classes, self.shape, self.ignore)

    @cached_property
    def sum_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """See `Task.sum_names`."""
        kinds = ("intersection", "wanted", "said")
        by_class = (f"{kind} of class {c}" for kind in kinds for c in range(self.classes))
        return ("loss", "pixels", *by_class)

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """See `Task.loss`. The mean over pixels that count; 0 if none does."""
        logits, wanted = self._both(outputs, targets)
        if self.ignore is not None and not bool((wanted != _IGNORED).any()):
            return logits.sum() * 0  # a mean over nothing would not be a number
        return F.cross_entropy(logits, wanted, ignore_index=_IGNORED)

    def sums(self, outputs: Any, targets: Tensor) -> Sequence[float]:
        """See `Task.sums`."""
        logits, wanted = self._both(outputs, targets)
        loss = float(F.cross_entropy(logits, wanted, ignore_index=_IGNORED, reduction="sum"))
        counted = wanted != _IGNORED
        wanted, said = wanted[counted], logits.argmax(1)[counted]
        right = torch.bincount(wanted[wanted == said], minlength=self.classes)
        all_wanted = torch.bincount(wanted, minlength=self.classes)
        all_said = torch.bincount(said, minlength=self.classes)
        return [loss, len(wanted), *torch.cat([right, all_wanted, all_said]).tolist()]

    def results(self, sums: Sequence[float], samples: int) -> dict[str, float]:
        """See `Task.results`. The mean IoU is over classes that occur, in masks or in predictions."""
        loss, pixels, *_ = sums
        right, wanted, said = self._by_class(sums)
        unions = [w + s - r for r, w, s in zip(right, wanted, said, strict=True)]
        shares = [r / u for r, u in zip(right, unions, strict=True) if u]
        return {
            "loss": loss / pixels if pixels else 0.0,
            "mean_iou": sum(shares) / len(shares) if shares else math.nan,
            "pixel_accuracy": sum(right) / pixels if pixels else math.nan,
        }

    def impossible(self, sums: Sequence[float], samples: int) -> str | None:
        """See `Task.impossible`."""
        pixels = sums[1]
        right, wanted, said = self._by_class(sums)
        if not 0 <= pixels <= samples * math.prod(self.shape):
            return f"{pixels:g} pixels"
        if any(not 0 <= r <= min(w, s) for r, w, s in zip(right, wanted, said, strict=True)):
            return "an intersection is larger than what it is of, or negative"
        if sum(wanted) != pixels or sum(said) != pixels:
            return f"classes of {sum(wanted):g} and {sum(said):g} pixels, where {pixels:g} count"
        return None

    def _by_class(self, sums: Sequence[float]) -> list[Sequence[float]]:
        return [sums[2 + i * self.classes : 2 + (i + 1) * self.classes] for i in range(3)]

    def _both(self, outputs: Any, targets: Tensor) -> tuple[Tensor, Tensor]:
        expected = (len(targets), self.classes, *self.shape)
        if tensor_of(outputs).dim() == 2:
            raise TaskError(
                f"targets of shape {list(targets.shape)} are read as a class for each pixel, but the model "
                f"gives outputs of shape {list(tensor_of(outputs).shape)}. For one class a sample give class "
                "numbers [N]: y.squeeze(1), or y.argmax(1) if they are one-hot"
            )
        logits = expect_shape(outputs, expected, self.name)
        if self.ignore is not None:
            # In a U-shape targets do not travel, and have the value that the data give them.
            targets = targets.masked_fill(targets == self.ignore, _IGNORED)
        return logits, targets
