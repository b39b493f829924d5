"""A Lightning module whose second half is on a server: python lightning_client.py 127.0.0.1:50551"""

import sys

import lightning
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import cutlayer


class SplitDigits(lightning.LightningModule):
    def __init__(self, remote: cutlayer.Remote) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.Linear(64, 32), nn.ReLU())
        self.remote = remote

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        x, y = batch
        return self.remote(self.head(x), y)

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        x, y = batch
        right = self.remote(self.head(x)).argmax(1) == y
        self.log("accuracy", right.float().mean(), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.head.parameters(), lr=1e-2)


def main(address: str, epochs: int = 3) -> float:
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    train, test = torch.utils.data.random_split(data, [1500, len(data) - 1500])
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    with cutlayer.connect(address, codec="ems:bpe=2") as remote:
        trainer.fit(SplitDigits(remote), DataLoader(train, 50, shuffle=True), DataLoader(test, 100))
    return float(trainer.callback_metrics["accuracy"])


if __name__ == "__main__":
    print(f"accuracy {main(sys.argv[1]):.3f}")
