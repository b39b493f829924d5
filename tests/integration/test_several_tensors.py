"""Several tensors at the cut: skips, two branches, a mask; the same bits over gRPC as in one process."""

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest

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
def test_the_network_gives_the_same_bits(
    cluster: Any, network: Any, several_nets_file: Path, model: str, settings: list[str]
) -> None:
    # No PYTHONPATH: models are found in the current directory.
    shutil.copy(several_nets_file, cluster.folder)
    name = f"several_nets:{model}"
    settings = [f"model.name={name}", "train.epochs=1", "data.limit=60", *settings]
    server = cluster.serve(*settings)
    clients = [cluster.join(number, "--allow-model", name) for number in range(3)]
    loop = cluster.train(*settings)
    assert server.wait() == 0, server.text
    assert [client.wait() for client in clients] == [0, 0, 0], [client.text for client in clients]
    assert network.plain(cluster.folder / "net") == network.plain(loop)
    network.same_weights(loop, cluster.folder / "net")
