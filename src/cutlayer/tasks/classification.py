"""Classification: a target is the number of a class; cross-entropy; top-1 and top-5 accuracy."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from cutlayer.errors import MessageError


@dataclass(frozen=True)
class Classification:
    """Samples of `classes` classes. A target travels in as few bits as the number of classes needs."""

    classes: int
    label_smoothing: float = 0.0
    """This share of a target is spread evenly over all classes, in the loss that is minimised."""

    def pack(self, targets: Tensor) -> bytes:
        """See `Task.pack`."""
        return pack(targets.numpy(), self.classes)

    def unpack(self, data: bytes, count: int) -> Tensor:
        """See `Task.unpack`."""
        return torch.from_numpy(unpack(data, count, self.classes))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """See `Task.loss`."""
        return F.cross_entropy(outputs, targets, label_smoothing=self.label_smoothing)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """See `Task.losses`."""
        return F.cross_entropy(outputs, targets, reduction="none", label_smoothing=self.label_smoothing)

    def score(self, outputs: Tensor, targets: Tensor) -> tuple[float, int, int]:
        """See `Task.score`."""
        loss = float(F.cross_entropy(outputs, targets, reduction="sum"))
        best = outputs.topk(min(5, outputs.shape[1]), dim=1).indices == targets[:, None]
        return loss, int(best[:, 0].sum()), int(best.sum())


def bits_per_label(classes: int) -> int:
    """ceil(log2(classes)), at least 1."""
    return max(1, (classes - 1).bit_length())


def pack(labels: npt.NDArray[np.int64], classes: int) -> bytes:
    """Labels 0..classes-1 as bytes, the lowest bit of the first label first."""
    bits = bits_per_label(classes)
    spread = (labels[:, None] >> np.arange(bits)) & 1
    return np.packbits(spread.astype(np.uint8).reshape(-1), bitorder="little").tobytes()


def unpack(packed: bytes, count: int, classes: int) -> npt.NDArray[np.int64]:
    """The labels in bytes from another party, checked: neither count nor values are believed."""
    bits = bits_per_label(classes)
    if len(packed) != (count * bits + 7) // 8:
        raise MessageError(
            f"{count} labels of {classes} classes take {(count * bits + 7) // 8} bytes, not {len(packed)}"
        )
    spread = np.unpackbits(np.frombuffer(packed, np.uint8), count=count * bits, bitorder="little")
    labels = spread.reshape(count, bits).astype(np.int64) @ (1 << np.arange(bits, dtype=np.int64))
    if count and int(labels.max()) >= classes:
        raise MessageError(f"a label is {int(labels.max())}; there are classes 0 to {classes - 1}")
    return labels
