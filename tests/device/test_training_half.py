"""An ONNX half trains as the same half in PyTorch does."""

import base64
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from cutlayer.client.build import build_client
from cutlayer.codecs import decode
from cutlayer.config.schema import Config
from cutlayer.data import Sampler
from cutlayer.device import training_half
from cutlayer.device.batches import Batches
from cutlayer.device.client import DeviceClient, pack_labels
from cutlayer.device.data_form import DataForm
from cutlayer.device.participant import OnnxParticipant
from cutlayer.device.samples import Samples
from cutlayer.device.training_half import TrainingFile, TrainingHalf
from cutlayer.errors import CheckpointError, ConfigError, DataError, FileError, MessageError, RefusedError
from cutlayer.protocol.build import make_client, make_server, make_task, prepare_data, prepare_model
from cutlayer.split.state import client_state
from cutlayer.tasks.base import pack
from cutlayer.wire.messages.types import Ask, BeginStep, Gradient, Share, State, SyncDown, SyncUp
from tests.onnx_files import changed

onnx = pytest.importorskip("onnx")


def batches_of(config: Config, file: TrainingFile) -> tuple[Batches, Samples]:
    data = prepare_data(config)
    part = data.parts[1]
    samples = Samples(data.train.images[part].numpy(), data.train.labels[part].numpy())
    how = {"seed": config.seed, "client": 1, "drop_last": False}
    return Batches(samples, file.form, config.train.batch_size, **how), samples


def test_gradients_are_those_of_pytorch_at_every_step_of_an_epoch(config: Config, half_file: Path) -> None:
    file = TrainingFile.load(half_file)
    half, data = TrainingHalf(file), prepare_data(config)
    _, parts = prepare_model(config, data.train)
    twin, task = make_client(config, parts), make_task(config, data.train)
    server = make_server(config, parts, task).part.train()
    batches, _ = batches_of(config, file)
    sampler = Sampler(data.parts[1], config.train.batch_size, seed=config.seed, client=1)
    assert len(batches) == len(sampler) > 4
    for step in range(len(batches)):
        images, labels = batches.at(0, step)
        indices = sampler.batch(0, step)
        expected = data.augment.train(
            data.train.images[indices], seed=config.seed, client=1, epoch=0, step=step
        )
        assert torch.equal(torch.from_numpy(images), expected)
        assert labels.tolist() == data.train.labels[indices].tolist()
        smashed, found = twin.forward(expected), half.forward(images)
        torch.testing.assert_close(torch.from_numpy(found), smashed, rtol=1e-4, atol=1e-5)
        cut = smashed.requires_grad_()
        (gradient,) = torch.autograd.grad(task.loss(server(cut), torch.from_numpy(labels)), cut)
        twin.backward(gradient)
        half.backward(gradient.numpy())
        a, b = twin.gradient_vector(), half.gradient_vector()
        assert float((a - torch.from_numpy(b)).norm() / a.norm()) < 1e-4
        twin.apply_mean(lambda a=a: a, 0.05, step)
        half.apply_mean(lambda b=b: b, 0.05, step)
    # After an epoch, weights, batch-norm statistics and momentum are the same, under the same names.
    states = client_state(twin), half.full_state()
    assert states[0].keys() == states[1].keys()
    for name, tensor in states[0].items():
        torch.testing.assert_close(torch.from_numpy(states[1][name]), tensor, rtol=1e-3, atol=1e-4)
        assert states[1][name].shape == tuple(tensor.shape)
    # And so is what it computes in evaluation.
    twin.model.head.eval()
    with torch.no_grad():
        expected = twin.model.head(data.augment.test(data.test.images))
    found = half.evaluate(data.augment.test(data.test.images).numpy())
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-3, atol=1e-3)


def test_answers_under_lossy_codecs_are_those_of_a_client_with_pytorch(
    config: Config, half_file: Path, tmp_path: Path
) -> None:
    """Both get the same messages of a server, so that the rounding of one step does not grow in the next."""
    up = "ms:ratio=0.9,bits=2"
    file = TrainingFile.load(changed(half_file, tmp_path / "lossy.onnx", {"rates": [[None, up]]}))
    config = config.model_copy(
        update={"codec": config.codec.model_copy(update={"up": up, "down": "qu:bits=8"})}
    )
    data = prepare_data(config)
    _, parts = prepare_model(config, data.train)
    twin = build_client(config, data, 1, make_client(config, parts))
    device = DeviceClient(1, TrainingHalf(file), batches_of(config, file)[0], None)
    server = make_server(config, parts, twin.task)
    for step in range(2 * len(twin.sampler)):
        begin = BeginStep(step, *divmod(step, len(twin.sampler)), 0.05, Share.GRADIENTS)
        (smashed, labels), (found, same) = (c.handle_from_network(begin) for c in (twin, device))
        x, y = decode(smashed.body), decode(found.body)
        # Few values are at a border between two marks of the mask.
        assert float(torch.isclose(x, y, rtol=1e-4).float().mean()) > 0.99, step
        assert labels == same
        targets = twin.task.unpack(labels.body, labels.count)
        _, gradient = server.train(x, targets)
        server.update(0.05)
        answer = Gradient(step, twin.codecs.encode(twin.codecs.down, gradient, "down", 1, 0, step))
        (shared, report), (other, told) = (c.handle_from_network(answer) for c in (twin, device))
        a, b = decode(shared.body), decode(other.body)
        assert float((a - b).norm() / a.norm()) < 1e-4, step
        assert (report.samples, report.number) == (told.samples, told.number)
        for client in (twin, device):
            client.handle_from_network(SyncDown(step, shared.body, shared.share, shared.first, 0.05, False))


def test_a_client_shares_and_restores_what_others_do(config: Config, half_file: Path) -> None:
    file = TrainingFile.load(half_file)
    batches, samples = batches_of(config, file)
    first, second = (DeviceClient(1, TrainingHalf(file), batches, samples) for _ in range(2))

    def step(client: DeviceClient, number: int) -> list[bytes]:
        begin = BeginStep(number, 0, number, 0.05, Share.WEIGHTS)
        smashed, labels = client.handle_from_network(begin)
        assert labels.body == pack(batches.at(0, number)[1], 10)
        shared, report = client.handle_from_network(Gradient(number, smashed.body))
        assert isinstance(shared, SyncUp)
        assert report.samples == labels.count
        return [smashed.body, shared.body]

    step(first, 0)
    (state,) = first.handle_from_network(Ask(1, Share.STATE))
    second.handle_from_network(State(1, state.body))
    assert step(first, 1) == step(second, 1)
    with pytest.raises(CheckpointError, match="another model"):
        second.handle_from_network(State(1, b"\x02\0\0\0\0\0\0\0{}"))
    with pytest.raises(MessageError, match="damaged"):
        second.handle_from_network(State(1, b"nonsense"))
    with pytest.raises(MessageError, match="step in progress"):
        second.handle_from_network(Gradient(7, state.body))


@pytest.mark.parametrize("classes", [2, 10, 200])
def test_labels_travel_as_those_of_pytorch(classes: int) -> None:
    labels = np.random.default_rng(0).integers(0, classes, 37)
    assert pack_labels(labels, classes) == pack(labels, classes)


@pytest.mark.parametrize(
    ("lie", "told"),
    [
        ({"format": 7}, "another format"),
        ({"kind": "inference"}, "not for training"),
        ({"settings": "{}"}, "not a half for training"),
        ({"settings": '{"seed": 1, "train": {}, "codec": {}}'}, "no 'mode'"),
        ({"settings": 5}, "no settings of a run"),
        ({"smashed": [0]}, "whole number"),
        ({"parameters": ["nothing"]}, "weights are missing"),
        ({"rates": []}, "which codec"),
        ({"rates": [[None, "nonsense"]]}, "no codec 'nonsense'"),
        ({"data": {}}, "not a half for training"),
    ],
)
def test_a_file_that_lies_is_refused(
    half_file: Path, tmp_path: Path, lie: dict[str, object], told: str
) -> None:
    with pytest.raises(FileError, match=told):
        TrainingFile.load(changed(half_file, tmp_path / "lie.onnx", lie))


def test_files_that_are_none(half_file: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        TrainingFile.load(tmp_path / "none.onnx")
    (tmp_path / "text.onnx").write_text("no graph")
    with pytest.raises(FileError, match="not an ONNX file"):
        TrainingFile.load(tmp_path / "text.onnx")
    other = base64.b64encode(b"no graph").decode()
    with pytest.raises(FileError, match="vector-Jacobian product"):
        TrainingFile.load(changed(half_file, tmp_path / "vjp.onnx", **{training_half.VJP: other}))


def test_an_offer_of_another_run_is_refused(config: Config, half_file: Path, tmp_path: Path) -> None:
    from cutlayer.protocol.handshake import settings_for_clients
    from cutlayer.wire.messages.protobuf import message_class

    np.savez(tmp_path / "mine.npz", images=np.zeros((9, 1, 8, 8), np.uint8), labels=np.arange(9))
    participant = OnnxParticipant(half_file, str(tmp_path / "mine.npz"))
    other = config.model_copy(update={"train": config.train.model_copy(update={"lr": 0.9})})
    with pytest.raises(RefusedError, match=r"train\.lr is '0\.05', the server's '0\.9'"):
        participant.prepare(message_class("Offer")(settings=settings_for_clients(other), client=1))
    ready = participant.prepare(message_class("Offer")(settings=settings_for_clients(config), client=1))
    assert (ready.samples, ready.test_samples, list(ready.shape)) == (9, 0, [1, 8, 8])


@pytest.mark.parametrize(
    ("images", "labels", "told"),
    [
        (np.zeros((3, 1, 9, 8), np.uint8), [0, 1, 2], "shape"),
        (np.zeros((3, 1, 8, 8), np.int64), [0, 1, 2], "type"),
        (np.zeros((3, 1, 8, 8), np.uint8), [0, 1], "labels"),
        (np.zeros((3, 1, 8, 8), np.uint8), [0, 1, 10], "classes 0 to 9"),
    ],
)
def test_data_that_do_not_fit(half_file: Path, tmp_path: Path, images, labels, told: str) -> None:
    np.savez(tmp_path / "mine.npz", images=images, labels=np.array(labels))
    with pytest.raises(DataError, match=told):
        OnnxParticipant(half_file, str(tmp_path / "mine.npz"))


def test_what_only_pytorch_can_is_named(half_file: Path, tmp_path: Path) -> None:
    data = json.loads({p.key: p.value for p in onnx.load(half_file).metadata_props}["cutlayer"])["data"]
    lie = {"data": data | {"augment": "resized-crop-flip"}}
    with pytest.raises(ConfigError, match="resized-crop-flip needs PyTorch"):
        OnnxParticipant(changed(half_file, tmp_path / "a.onnx", lie), "nowhere")


def test_no_pytorch_is_imported(half_file: Path) -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from cutlayer.client.join import join\n"
        "from cutlayer.device.participant import TrainingFile\n"
        f"file = TrainingFile.load({str(half_file)!r})\n"
        "assert file.parameters and not {'pydantic', 'onnx', 'prometheus_client'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_forms_are_checked() -> None:
    good = {"name": "x", "shape": [1, 8, 8], "pixels": True, "classes": 2, "class_names": None}
    good |= {"augment": "none", "mean": [0.5], "std": [0.2], "size": None}
    assert DataForm.parse(good).shape == (1, 8, 8)
    for lie in (
        {"shape": [8, 8]},
        {"shape": [1, -8, 8]},
        {"shape": [1, 1 << 12, 1 << 12]},
        {"classes": True},
        {"class_names": ["a"]},
        {"class_names": ["a", "\x1b[2J"]},
        {"mean": [float("nan")]},
        {"std": [0.0]},
        {"size": 9},
        {"pixels": 1},
        {"augment": "other"},
    ):
        with pytest.raises((ValueError, TypeError)):
            DataForm.parse(good | lie)
