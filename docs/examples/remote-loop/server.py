"""The server of both examples: its half of a model, updated after each batch of a client.

python server.py digits 127.0.0.1:50551      for lightning_client.py
python server.py bert 127.0.0.1:50551        for trainer_client.py
"""

import sys
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

import cutlayer


class DigitsHalf(nn.Sequential):
    """From 32 features to ten classes."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))


class BertHalf(nn.Module):
    """The blocks of a small BERT behind the client's, and a classifier."""

    def __init__(self) -> None:
        from transformers import BertConfig, BertModel

        super().__init__()
        settings = {"vocab_size": 64, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
        self.blocks = BertModel(BertConfig(**settings, num_hidden_layers=2)).encoder.layer
        self.classifier = nn.Linear(32, 2)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            hidden = block(hidden)
        return self.classifier(hidden.mean(1))


def main(kind: str, address: str, ready: Callable[[int], None] = lambda port: None) -> None:
    part = {"digits": DigitsHalf, "bert": BertHalf}[kind]()
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-2)
    server = cutlayer.RemoteServer(part, address, loss=F.cross_entropy, ready=ready)
    for step in server:
        optimizer.step()
        optimizer.zero_grad()
        if step.update % 25 == 0:
            print(f"update {step.update}: loss {step.loss:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
