"""A LightningModule that trains a model cut in two, with a codec at the cut.

    module = SplitModule(resnet18(), at="layer2", up="ems:bpe=1.0", classes=10)
    Trainer(max_epochs=5).fit(module, loader)

Forward and backward are those of split learning in one process: smashed data and gradients are encoded and
decoded. Bytes are logged as `cut/up_bytes` and `cut/down_bytes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn import functional as F

from cutlayer.codecs.registry import codec
from cutlayer.split.cut import cut
from cutlayer.split.layer import CutLayer


class SplitModule(LightningModule):
    """A model cut at a module, trained with a loss of (output, target); by default cross-entropy."""

    def __init__(
        self,
        model: nn.Module,
        at: str,
        up: str | None = "ems:bpe=1.0",
        down: str | None = None,
        *,
        loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
        lr: float = 0.1,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.client, self.server = cut(model, at)
        self.cut = CutLayer(codec(up) if up else None, codec(down) if down else None, seed=seed)
        self.loss = loss
        self.lr = lr

    def forward(self, x: Tensor) -> Tensor:
        """The model's output, through the codec."""
        result: Tensor = self.server(self.cut(self.client(x)))
        return result

    def training_step(self, batch: Any, batch_index: int) -> Tensor:
        """The loss of a batch of inputs and targets."""
        x, target = batch
        loss = self.loss(self(x), target)
        self.log("train_loss", loss)
        crossed = self.cut.last_up
        if crossed is not None:
            self.log("cut/up_bytes", float(crossed.bytes))
            self.log("cut/saving", crossed.saving)
        return loss

    def on_after_backward(self) -> None:
        """Log what the gradient cost on its way down."""
        if self.cut.last_down is not None:
            self.log("cut/down_bytes", float(self.cut.last_down.bytes))

    def validation_step(self, batch: Any, batch_index: int) -> None:
        """Loss and accuracy with the codec in place."""
        x, target = batch
        output = self(x)
        self.log("val_loss", self.loss(output, target))
        if output.dim() == 2 and not target.is_floating_point():
            self.log("val_accuracy", (output.argmax(1) == target).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain SGD with momentum; subclass to choose another."""
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)
