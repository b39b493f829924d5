"""A split model in Lightning: as a module of its own, and as a callback on a module that is there.

python docs/examples/lightning_split.py
"""

import logging
import warnings

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from cutlayer.integrations.lightning_callback import CompressCut
from cutlayer.integrations.lightning_module import SplitModule

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))


class Whole(LightningModule):
    """A module as people have it, that knows nothing of cutlayer."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def training_step(self, batch, batch_index):
        x, target = batch
        return nn.functional.cross_entropy(self.net(x), target)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


seed_everything(0, verbose=False)
x = torch.randn(512, 32)
loader = DataLoader(TensorDataset(x, x[:, :4].argmax(1)), batch_size=64)

trainer = Trainer(max_epochs=20, **QUIET)
trainer.fit(SplitModule(net(), at="1", up="ms:ratio=0.9,bits=2"), loader, loader)
metrics = trainer.callback_metrics
print("module: accuracy above 0.8:", bool(metrics["val_accuracy"] > 0.8))
print(f"smashed data {metrics['cut/saving']:.1f} times smaller than float32")

cut = CompressCut("net.1", up="ms:ratio=0.9,bits=2", down="qu:bits=8")
trainer = Trainer(max_epochs=2, callbacks=[cut], **QUIET)
trainer.fit(Whole(), loader)
bytes_up = int(trainer.callback_metrics["cut/up_bytes"])
print(f"callback: {bytes_up} bytes up instead of {64 * 64 * 4}")
