"""Split inference without PyTorch: an ONNX half gives what the half in PyTorch gives."""

import csv
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from cutlayer.cli import app
from cutlayer.data import load
from cutlayer.device.inference_half import OnnxHalf
from cutlayer.device.samples import read_samples
from cutlayer.errors import ConfigError, DataError, FileError, RefusedError
from cutlayer.inference.client_half import ClientSide
from cutlayer.inference.predict import Predictor
from cutlayer.inference.remote_model import RemoteModel
from cutlayer.onnx_export.inference_half import export_onnx
from cutlayer.onnx_export.sources import export_run
from cutlayer.training.load_run import open_run
from tests.onnx_files import changed

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")


@pytest.fixture(scope="session")
def device(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client's half of the run as ONNX."""
    path = tmp_path_factory.mktemp("onnx") / "device.onnx"
    export_onnx(open_run(trained), path)
    return path


def test_features_are_those_of_pytorch(trained: Path, device: Path) -> None:
    half, twin = OnnxHalf.load(device), ClientSide.load(trained)
    images = load("digits", "test").images
    for piece in (images, images[:1]):
        expected, found = twin.smash(piece), torch.from_numpy(half.smash(piece.numpy()))
        assert float((found - expected).norm() / expected.norm()) < 1e-4
    assert (half.digest, str(half.up), half.u_shaped) == (
        twin.digest,
        str(twin.codecs.up.deterministic()),
        False,
    )
    assert half.data_spec.class_names == twin.data_spec.class_names


def test_predictions_are_those_of_pytorch_and_none_is_imported(
    served, trained: Path, device: Path, tmp_path: Path
) -> None:
    test = load("digits", "test")
    np.savez(tmp_path / "test.npz", images=test.images.numpy(), labels=test.labels.numpy())
    local, batch = Predictor(open_run(trained)), 64  # of a RemoteModel; frames depend on it
    expected = torch.cat([local.logits(piece) for piece in torch.split(test.images, batch)])
    program = (
        "import sys; sys.modules['torch'] = None; sys.argv = ['cutlayer', *sys.argv[1:]]\n"
        "from cutlayer.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "heavy = {'onnx', 'prometheus_client', 'sklearn', 'cryptography', 'rich', 'cutlayer.training'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    with served(trained) as (address, _):
        words = ["predict", device, "--data", tmp_path / "test.npz", "--server", address]
        command = [sys.executable, "-c", program, *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        with RemoteModel(address, device, batch=batch) as model:
            logits = model(test.images.numpy())
    labels = [int(row["label"]) for row in csv.DictReader(io.StringIO(done.stdout))]
    assert labels == logits.argmax(1).tolist()
    best = expected.topk(2).values
    certain = (best[:, 0] - best[:, 1] > 1e-3).numpy()  # all but ties
    assert certain.mean() > 0.9
    assert (np.array(labels) == expected.argmax(1).numpy())[certain].all()
    assert "over the cut" in done.stderr


def test_a_u_shaped_half_has_its_tail(served, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = [
        "--mode",
        "u-shaped",
        "--cut",
        "layer1,fc",
        "--clients",
        2,
        "--epochs",
        1,
        "--threads",
        1,
        "--quiet",
    ]
    words += ["--set", "model.width=4", "--set", "data.limit=80", "--codec", "none", "--out", out]
    assert CliRunner().invoke(app, ["train", *map(str, words)]).exit_code == 0
    half = export_onnx(open_run(out), tmp_path / "device.onnx")
    assert half.u_shaped
    images = load("digits", "test").images[:9]
    with served(out) as (address, _), RemoteModel(address, half) as model:
        found = model(images.numpy())
    np.testing.assert_allclose(found, Predictor(open_run(out)).logits(images).numpy(), rtol=1e-3, atol=1e-4)


def test_int8_costs_little(trained: Path, device: Path, tmp_path: Path) -> None:
    half = export_run(open_run(trained), tmp_path / "int8.onnx", int8=True)
    assert half.quantized
    assert half.digest == OnnxHalf.load(device).digest
    images = load("digits", "test").images.numpy()
    expected, found = OnnxHalf.load(device).smash(images), half.smash(images)
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert 0 < error < 0.1


def test_another_run_is_refused_by_the_server(served, trained: Path, device: Path, tmp_path: Path) -> None:
    other = changed(device, tmp_path / "other.onnx", {"digest": "0" * 64})
    refused = pytest.raises(RefusedError, match="another run or checkpoint")
    with served(trained) as (address, _), RemoteModel(address, other) as model, refused:
        model(np.zeros((1, 1, 8, 8), np.uint8))


@pytest.mark.parametrize(
    ("lie", "told"),
    [
        ({"format": 9}, "another format"),
        ({"kind": "training"}, "a half for training, not for inference"),
        ({"digest": "xyz"}, "64 hexadecimal"),
        ({"codec": "nonsense"}, "no codec 'nonsense'"),
        ({"smashed": [4, 4]}, "not what the file says"),
        ({"data": None}, "not the client's half"),
        ({"quantized": 1}, "neither true nor false"),
    ],
)
def test_a_file_that_lies_is_refused(device: Path, tmp_path: Path, lie: dict[str, object], told: str) -> None:
    with pytest.raises(FileError, match=told):
        OnnxHalf.load(changed(device, tmp_path / "lie.onnx", lie))


def test_files_that_are_no_half(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        OnnxHalf.load(tmp_path / "none.onnx")
    path = tmp_path / "some.onnx"
    path.write_bytes(b"nonsense")
    with pytest.raises(FileError, match="not an ONNX file"):
        OnnxHalf.load(path)
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    ends = [helper.make_tensor_value_info(name, kind, [1]) for name in "xy"]
    for operator, told in (
        ("Relu", "does not say what it is"),
        ("Nonsense", r"lacks an operator .*Nonsense"),
    ):
        graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"])], "g", ends[:1], ends[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        path.write_bytes(model.SerializeToString())
        with pytest.raises(FileError, match=told):
            OnnxHalf.load(path)


def test_samples_that_do_not_fit(device: Path, tmp_path: Path) -> None:
    half = OnnxHalf.load(device)
    with pytest.raises(DataError, match=r"shape \[1, 9, 8\], but the model takes \[1, 8, 8\]"):
        half.smash(np.zeros((2, 1, 9, 8), np.uint8))
    with pytest.raises(DataError, match="type float32, but the model takes uint8"):
        half.smash(np.zeros((2, 1, 8, 8), np.float32))
    with pytest.raises(DataError, match="nothing there"):
        read_samples(tmp_path / "none", half.data_spec)
    np.save(tmp_path / "a.npy", np.zeros((3, 1, 8, 8), np.uint8))
    assert len(read_samples(tmp_path / "a.npy", half.data_spec, limit=2)) == 2


def test_images_are_read_as_with_pytorch(device: Path, tmp_path: Path) -> None:
    from PIL import Image

    from cutlayer.config.schema import load
    from cutlayer.inference.samples import samples

    spec = OnnxHalf.load(device).data_spec
    rng = np.random.default_rng(0)
    for name, size in (("a.png", (8, 8)), ("b.png", (20, 31))):
        Image.fromarray(rng.integers(0, 255, size, np.uint8)).save(tmp_path / name)
    found = read_samples(tmp_path, spec)
    expected = samples(str(tmp_path), load(None, []), spec, "test", ".", None)
    assert np.array_equal(found.images, expected.images.numpy())
    assert found.names == expected.names == ("a.png", "b.png")


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "device.onnx", "--data", "x.npy"],
        ["predict", "device.onnx", "--server", "127.0.0.1:1"],
        ["export", "run", "--format", "onnx"],
        ["export", "run", "--part", "client", "--int8"],
    ],
)
def test_commands_that_cannot_be(words: list[str]) -> None:
    assert isinstance(CliRunner().invoke(app, words).exception, ConfigError)
