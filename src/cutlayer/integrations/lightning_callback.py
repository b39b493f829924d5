"""A Lightning callback that puts a codec behind a module of any LightningModule, without changing its code.

    Trainer(callbacks=[CompressCut("backbone.layer2", up="ems:bpe=1.0")]).fit(module, loader)

What the module gives is encoded and decoded, as if it crossed the network; so is its gradient, with `down`.
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback
from torch import Tensor, nn

from cutlayer.codecs.registry import codec
from cutlayer.errors import CutError
from cutlayer.split.layer import CutLayer


class CompressCut(Callback):
    """Compresses what one module gives, and logs the bytes."""

    def __init__(self, at: str, up: str = "ems:bpe=1.0", down: str | None = None, *, seed: int = 0) -> None:
        self.at = at
        self.layer = CutLayer(codec(up), codec(down) if down else None, seed=seed)
        self._handle: Any = None

    def setup(self, trainer: Any, pl_module: nn.Module, stage: str) -> None:
        """Put the codec in place."""
        if self._handle is not None:
            return
        modules = dict(pl_module.named_modules())
        if self.at not in modules or not self.at:
            near = ", ".join(list(modules)[1:9])
            raise CutError(f"there is no module {self.at!r} to cut behind; there are: {near}, ...")
        self._handle = modules[self.at].register_forward_hook(self._cross)

    def teardown(self, trainer: Any, pl_module: nn.Module, stage: str) -> None:
        """Take the codec out again."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Log what crossed the cut."""
        for name, crossed in (("up", self.layer.last_up), ("down", self.layer.last_down)):
            if crossed is not None:
                pl_module.log(f"cut/{name}_bytes", float(crossed.bytes))

    def _cross(self, module: nn.Module, _: Any, output: Any) -> Tensor:
        if not isinstance(output, Tensor):
            raise CutError(f"{self.at} gives a {type(output).__name__}; a codec takes one tensor")
        self.layer.train(module.training)
        crossed: Tensor = self.layer(output)
        return crossed
