"""What is exported for training: settings and data of a file, a recipe or a run; what cannot be is named."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cutlayer.cli import app
from cutlayer.config.schema import Config, load
from cutlayer.data.spec import DataSpec
from cutlayer.errors import ConfigError
from cutlayer.onnx_export.sources import configuration
from cutlayer.onnx_export.training_half import check, rates
from cutlayer.protocol.build import prepare_data


def test_settings_and_data_of_a_file_a_recipe_and_a_run(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("[train]\nclients = 3\n")
    config, spec = configuration(str(tmp_path / "run.toml"), ["train.lr=0.2"])
    assert (config.train.clients, config.train.lr, spec.shape, spec.classes) == (3, 0.2, (1, 8, 8), 10)
    assert configuration("demo/digits-ms")[1].name == "digits"
    # A run's directory says what its data look like, which may be gone.
    (tmp_path / "config.toml").write_text('[data]\nsource = "gone"\n')
    spec.write(tmp_path)
    assert configuration(str(tmp_path))[1] == spec


def test_data_that_are_not_here_are_described(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('[data]\nsource = "elsewhere"\n')
    where = str(tmp_path / "run.toml")
    _, spec = configuration(where, shape="3,32,32", classes="cat,dog")
    assert (spec.shape, spec.pixels, spec.classes, spec.class_names) == ((3, 32, 32), True, 2, ("cat", "dog"))
    _, spec = configuration(where, shape="20", classes="7")
    assert (spec.shape, spec.pixels, spec.classes, spec.class_names) == ((20,), False, 7, None)
    for shape, classes in (("3,32,32", None), (None, "7"), ("3,x", "7"), ("3,0,3", "7"), ("3", "0")):
        with pytest.raises(ConfigError, match="--shape and --classes"):
            configuration(where, shape=shape, classes=classes)


@pytest.fixture(scope="module")
def spec() -> DataSpec:
    return DataSpec.of(prepare_data(load(None, ["data.limit=40"])))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (["train.mode=sequential"], "mode parallel, not sequential"),
        (["train.aggregation=allgather", "codec.feedback=false"], "allgather needs PyTorch"),
        (["train.accumulate=2"], "accumulate: 2 needs PyTorch"),
        (["train.precision=bfloat16"], "precision: bfloat16 needs PyTorch"),
        (["train.clip_gradient=1.0"], "clip_gradient: 1.0 needs PyTorch"),
        (["train.share_differences=true", "train.sync=epoch"], "share_differences: True needs PyTorch"),
        (["codec.memory=splitcom"], "codec.memory: splitcom:threshold=0.98 needs PyTorch"),
        (["codec.rate=auto"], "a rate that follows the link needs PyTorch"),
    ],
)
def test_what_needs_pytorch_is_named(spec: DataSpec, settings: list[str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        check(load(None, settings), spec)


def test_rates_in_stages_are_written_down() -> None:
    config: Config = load(None, ["codec.up=ems:bpe=2.0", "codec.rate=until:80%=0.5"])
    assert rates(config) == [(0.8, "ems:bpe=0.5"), (None, "ems:bpe=2.0")]
    assert rates(load(None, ["codec.up=none"])) == [(None, "dense")]


def test_the_command_wants_the_clients_half() -> None:
    found = CliRunner().invoke(app, ["export", "run.toml", "--format", "onnx-training"])
    assert isinstance(found.exception, ConfigError)
    assert "--part client" in str(found.exception)
