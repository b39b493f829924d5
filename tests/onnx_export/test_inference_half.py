"""Halves of tabular models are exported with their standardisation; what a device cannot do is named."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from cutlayer.config.schema import Config
from cutlayer.data import ArrayDataset, Statistics
from cutlayer.data.spec import DataSpec
from cutlayer.device.batches import normalized
from cutlayer.errors import ConfigError, ModelError
from cutlayer.inference.client_half import ClientSide
from cutlayer.onnx_export.inference_half import check_form, export_onnx, one_tensor
from cutlayer.protocol.build import federate
from cutlayer.training.load_run import open_run
from cutlayer.training.train import train

pytest.importorskip("onnx")
pytest.importorskip("onnxscript")


def test_features_are_standardised_as_in_training(configure: Callable[..., Config], tmp_path: Path) -> None:
    rng = torch.Generator().manual_seed(3)
    features = torch.randn(40, 6, generator=rng) * 3 + 1e5
    statistics = Statistics((1e5,) * 6, (3.0,) * 6)
    data = ArrayDataset(features, torch.arange(40) % 3, classes=3, statistics=statistics)
    config = configure("model.name=mlp", "train.epochs=1", "model.cut=shallow")
    trained = open_run(train(config, data=federate(config, data, data)).directory)
    half, twin = export_onnx(trained, tmp_path / "device.onnx"), ClientSide.of(trained)
    expected = twin.smash(features)
    assert isinstance(expected, torch.Tensor)
    np.testing.assert_allclose(half.smash(features.numpy()), expected.numpy(), rtol=1e-4, atol=1e-5)
    # In training the device does it in NumPy, to the same bits.
    found = normalized(features.numpy(), half.data_spec)
    assert torch.equal(torch.from_numpy(found), trained.data_spec.preprocess().test(features))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (ArrayDataset(torch.rand(8, 4), torch.rand(8)), r"of float32 \[4\] and targets of float32 \[\]"),
        (
            ArrayDataset(
                {"left": torch.rand(8, 4), "right": torch.rand(8, 2)}, torch.arange(8) % 2, classes=2
            ),
            r"left: float32 \[4\], right: float32 \[2\] and targets of int64",
        ),
        (
            ArrayDataset(torch.arange(32).view(8, 4), torch.arange(8) % 2, classes=2, tokens=32),
            r"of int64 \[4\] and targets of int64",
        ),
    ],
)
def test_data_of_other_forms_are_refused(
    configure: Callable[..., Config], data: ArrayDataset, told: str
) -> None:
    spec = DataSpec.of(federate(configure(), data, data))
    with pytest.raises(ConfigError, match=told):
        check_form(spec)


def test_several_tensors_at_the_cut_are_refused() -> None:
    x = torch.zeros(2, 3)
    assert one_tensor(x) is x
    with pytest.raises(ModelError, match=r"several tensors cross the cut \(a, mask\)"):
        one_tensor({"a": x, "mask": x > 0})
