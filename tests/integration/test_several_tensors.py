"""Several tensors at the cut: skips, two branches, a mask; the same bits over gRPC as in one process."""

import importlib.util
from typing import Any

import pytest

NETS = """
import torch
import torch.nn.functional as F
from torch import nn


class UNet(nn.Module):
    def __init__(self, classes, in_channels):
        super().__init__()
        self.down1 = nn.Conv2d(in_channels, 4, 3, padding=1)
        self.down2 = nn.Conv2d(4, 6, 3, padding=1)
        self.up2 = nn.Conv2d(6, 4, 3, padding=1)
        self.up1 = nn.Conv2d(8, 4, 3, padding=1)
        self.fc = nn.Linear(4, classes)

    def forward(self, x):
        a = F.relu(self.down1(x))
        b = F.relu(self.down2(F.max_pool2d(a, 2)))
        c = F.interpolate(self.up2(b), scale_factor=2)
        return self.fc(self.up1(torch.cat([c, a], 1)).mean((2, 3)))


class Branches(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.left = nn.Linear(32, 8)
        self.right = nn.Linear(32, 8)
        self.join = nn.Linear(16, classes)

    def forward(self, x):
        left, right = x.flatten(1).chunk(2, 1)
        left = self.left(left)
        return self.join(torch.cat([left, self.right(right)], 1).tanh())


class Tokens(nn.Module):
    def __init__(self, classes):
        from transformers import BertConfig, BertForSequenceClassification

        super().__init__()
        self.bert = BertForSequenceClassification(BertConfig(
            vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=2, num_attention_heads=2,
            max_position_embeddings=64, num_labels=classes, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        ))

    def forward(self, x):
        ids = (x.flatten(1)[:, :24] * 2).long().clamp(0, 7)
        return self.bert(input_ids=ids, attention_mask=ids != 0)
"""
SKIP = 'codec.tensors={relu = "qu:bits=6", down2 = "ems:bpe=2.0"}'
HF = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None,
    reason="needs the extra `hf`: pip install 'cutlayer[hf]'",
)
RUNS = [
    pytest.param("UNet", ["model.cut=down2", SKIP], id="skips"),
    pytest.param(
        "UNet",
        [
            "train.mode=u-shaped",
            'model.cut=["down1", "up1"]',
            "train.server_batching=fused",
            "codec.down=qu:bits=8",
        ],
        id="skips in a u-shape",
    ),
    pytest.param("Branches", ["model.cut=right", "train.server_batching=fused"], id="two branches"),
    pytest.param("Tokens", ["model.cut=bert.bert.encoder.layer.0"], id="mask", marks=HF),
]


@pytest.mark.parametrize(("model", "settings"), RUNS)
def test_the_network_gives_the_same_bits(cluster: Any, network: Any, model: str, settings: list[str]) -> None:
    # No PYTHONPATH: models are found in the current directory.
    (cluster.folder / "several_nets.py").write_text(NETS)
    name = f"several_nets:{model}"
    settings = [f"model.name={name}", "train.epochs=1", "data.limit=60", *settings]
    server = cluster.serve(*settings)
    clients = [cluster.join(number, "--allow-model", name) for number in range(3)]
    loop = cluster.train(*settings)
    assert server.wait() == 0, server.text
    assert [client.wait() for client in clients] == [0, 0, 0], [client.text for client in clients]
    assert network.plain(cluster.folder / "net") == network.plain(loop)
    network.same_weights(loop, cluster.folder / "net")
