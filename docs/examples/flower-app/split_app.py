"""A Flower app that trains a split model with cutlayer's codecs: `flwr run docs/examples/flower-app`."""

import torch
from torch import Tensor, nn

from cutlayer.integrations.flower import split_client_app, split_server_app


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))


def batch(node: int, step: int) -> tuple[Tensor, Tensor]:
    """Data that are made up; a real app reads those of its node."""
    draw = torch.Generator().manual_seed(1000 * node + step)
    x = torch.randn(64, 32, generator=draw)
    return x, x[:, :4].argmax(1)


def told(step: int, loss: float, sent: int, raw: int) -> None:
    if step % 10 == 9:
        print(f"step {step + 1}: loss {loss:.2f}, smashed data {raw / sent:.1f} times smaller", flush=True)


client_app = split_client_app(net, at="1", data=batch, up="ems:bpe=2.0")
server_app = split_server_app(net, at="1", steps=30, told=told)
