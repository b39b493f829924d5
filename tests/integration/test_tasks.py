"""Tasks over the network, each party a process of its own: the same bits as in one process."""

from pathlib import Path

import pytest

NETS = """
from torch import nn

def table(classes, in_channels):
    return nn.Sequential(
        nn.Linear(in_channels, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, classes)
    )
"""
PLAIN = ["data.partition=even", "train.epochs=1"]
TABLE = [
    *PLAIN, "data.source=houses.csv", "data.target=price", "model.name=net_models:table",
    'model.cut=["1", "4"]',
    "train.mode=u-shaped", "codec.up=qu:bits=8", "train.lr=0.01",
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rows = [f"{i % 7},{i * i % 11},{(i % 7) * 2 + i * i % 11}" for i in range(80)]
    (tmp_path / "houses.csv").write_text("\n".join(["a,b,price", *rows]) + "\n")
    (tmp_path / "book.txt").write_text("".join(chr(97 + (5 * i + i // 9) % 13) for i in range(700)))
    (tmp_path / "net_models.py").write_text(NETS)
    return tmp_path


def test_language_and_its_packed_targets(cluster, network, folder: Path) -> None:
    settings = [
        *PLAIN, "data.source=text:book.txt", "data.context=8", "model.name=gpt", "model.width=8",
        "model.blocks=2", "model.heads=2", "model.cut=shallow",
    ]  # fmt: skip
    server = cluster.serve(*settings)
    clients = [cluster.join(number, "--data", "text:book.txt") for number in range(3)]
    loop = cluster.train(*settings)
    assert server.wait() == 0, server.text
    assert [client.wait() for client in clients] == [0, 0, 0], [client.text for client in clients]
    assert network.plain(folder / "net") == network.plain(loop)
    network.same_weights(loop, folder / "net")
    last = network.plain(loop)[-1]
    assert last["perplexity"] > 1
    # Thirteen letters take four bits: half a byte a token.
    first = network.plain(loop)[0]
    assert first["bytes"]["up/labels"] == first["samples"] * 8 // 2


def test_a_table_whose_tails_score(cluster, network, folder: Path) -> None:
    paths = {"PYTHONPATH": str(folder)}
    server = cluster.serve(*TABLE, **paths)
    flags = ("--data", "houses.csv", "--allow-model", "net_models:table")
    clients = [cluster.join(number, *flags, **paths) for number in range(3)]
    sets = [part for setting in (*network.SETTINGS, *TABLE) for part in ("--set", setting)]
    loop = cluster.nursery.start("train", *sets, "--out", "loop", "--threads", "1", cwd=folder, **paths)
    assert loop.wait() == 0, loop.text
    assert server.wait() == 0, server.text
    assert [client.wait() for client in clients] == [0, 0, 0], [client.text for client in clients]
    assert network.plain(folder / "net") == network.plain(folder / "loop")
    network.same_weights(folder / "loop", folder / "net")
    last = network.plain(folder / "net")[-1]
    assert all(last[metric] is not None for metric in ("mse", "mae", "r2"))
