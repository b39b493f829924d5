from pathlib import Path

import pytest

from cutlayer.config.schema import Config, load
from cutlayer.data.spec import DataSpec
from cutlayer.onnx_export.training_half import export_training
from cutlayer.protocol.build import prepare_data


@pytest.fixture(scope="session")
def config() -> Config:
    """Settings of a run of two clients, with batch norm, momentum and weight decay."""
    return load(
        None, ["model.width=4", "train.clients=2", "train.lr=0.05", "codec.up=none", "data.limit=300"]
    )


@pytest.fixture(scope="session")
def half_file(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client's half of these settings as ONNX, for training."""
    path = tmp_path_factory.mktemp("half") / "client.onnx"
    export_training(config, DataSpec.of(prepare_data(config)), path)
    return path
