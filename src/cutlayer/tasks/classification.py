"""Classification: a target is the number of a class; cross-entropy; top-1 and top-5 accuracy."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from cutlayer.wire.messages import labels


@dataclass(frozen=True)
class Classification:
    """Samples of `classes` classes. A target travels in as few bits as the number of classes needs."""

    classes: int

    def pack(self, targets: Tensor) -> bytes:
        """See `Task.pack`."""
        return labels.pack(targets.numpy(), self.classes)

    def unpack(self, data: bytes, count: int) -> Tensor:
        """See `Task.unpack`."""
        return torch.from_numpy(labels.unpack(data, count, self.classes))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """See `Task.loss`."""
        return F.cross_entropy(outputs, targets)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """See `Task.losses`."""
        return F.cross_entropy(outputs, targets, reduction="none")

    def score(self, outputs: Tensor, targets: Tensor) -> tuple[float, int, int]:
        """See `Task.score`."""
        loss = float(F.cross_entropy(outputs, targets, reduction="sum"))
        best = outputs.topk(min(5, outputs.shape[1]), dim=1).indices == targets[:, None]
        return loss, int(best[:, 0].sum()), int(best.sum())
