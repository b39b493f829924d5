"""Runs whose cut carries several tensors: against plain PyTorch, resumed, and with wrong settings."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from cutlayer.data import Sampler
from cutlayer.errors import ConfigError
from cutlayer.protocol.build import prepare_model
from cutlayer.training.local_run import LocalRun


@pytest.fixture
def nets(several_nets: Any) -> str:
    return f"model.name={several_nets.__name__}:"


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("UNet", ["model.cut=down2"]),
        ("UNet", ["train.mode=u-shaped", 'model.cut=["down1", "up1"]']),
        ("UNet", ["train.mode=u-shaped", 'model.cut=["down2", "fc"]']),
        ("Masked", ["model.cut=first"]),
    ],
)
def test_one_client_is_plain_training_to_the_last_bit(
    nets: str, start: Callable[..., LocalRun], model: str, settings: list[str]
) -> None:
    session = start("train.clients=1", "data.limit=40", nets + model, *settings)
    data, config = session.data, session.config
    whole = prepare_whole(session)
    t = config.train
    opt = torch.optim.SGD(whole.parameters(), t.lr, t.momentum, weight_decay=t.weight_decay)
    sampler = Sampler(data.parts[0], t.batch_size, seed=config.seed, client=0)
    while not session.done:
        step = session.server.plan.at(session.number)
        indices = sampler.batch(step.epoch, step.step)
        place = {"seed": config.seed, "client": 0, "epoch": step.epoch, "step": step.step}
        images = data.augment.train(data.train.images[indices], **place)
        opt.param_groups[0]["lr"] = step.lr
        opt.zero_grad()
        loss = F.cross_entropy(whole(images), data.train.labels[indices])
        loss.backward()
        opt.step()
        assert session.step().loss == float(loss.detach())
    found = session.model().state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in whole.state_dict().items())
    with torch.no_grad():
        test = whole.eval()(data.augment.test(data.test.images))
    assert session.evaluate().metrics["accuracy"] == pytest.approx(
        float((test.argmax(1) == data.test.labels).float().mean())
    )


def prepare_whole(session: LocalRun) -> torch.nn.Module:
    from cutlayer.models import ANY_MODEL

    return prepare_model(session.config, session.data.train, ANY_MODEL)[0].train()


def test_the_mask_takes_a_bit_an_element(nets: str, start: Callable[..., LocalRun]) -> None:
    result = start(nets + "Masked", "model.cut=first", "train.clients=1", "codec.up=qu:bits=4").step()
    # Frames of 8x16 floats in 4 bits and of 8x64 booleans in 1 bit, each with a header, and their names.
    payload = 8 * 16 // 2 + 8 * 64 // 8
    assert payload < result.bytes["up/smashed"] < payload + 120
    assert result.raw_bytes["up/smashed"] == 8 * 16 * 4 + 8 * 64
    assert result.raw_bytes["down/gradients"] == 8 * 16 * 4
    assert result.error > 0


@pytest.mark.parametrize(
    "settings",
    [
        ["model.cut=down2", "codec.up=rk:ratio=0.5", 'codec.tensors.relu="qu:bits=3,rounding=stochastic"'],
        ["train.mode=u-shaped", 'model.cut=["down1", "up1"]', "codec.down=qu:bits=4,rounding=stochastic"],
    ],
)
def test_a_run_resumes_exactly(
    nets: str, resumes_exactly: Callable[[list[str], int], None], settings: list[str]
) -> None:
    resumes_exactly([nets + "UNet", "data.limit=60", "train.epochs=1", *settings], 2)


def test_codecs_for_tensors_that_do_not_cross(nets: str, start: Callable[..., LocalRun]) -> None:
    with pytest.raises(ConfigError, match="no tensor 'skip' crosses the cut; there are: down2, relu"):
        start(nets + "UNet", "model.cut=down2", "codec.tensors.skip=ms")
    with pytest.raises(ConfigError, match="one tensor crosses"):
        start("codec.tensors.skip=ms")
    with pytest.raises(ConfigError, match=r"codec\.tensors"):
        start(nets + "UNet", "model.cut=down2", "codec.tensors.relu=mss")


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
def test_only_adapters_are_trained_averaged_and_saved(nets: str, start: Callable[..., LocalRun]) -> None:
    pytest.importorskip("peft", reason="needs the extra `hf`: pip install 'cutlayer[hf]'")
    settings = [nets + "adapted", "model.cut=base_model.model.vit.layers.0", "data.limit=40", "train.lr=0.5"]
    session = start(*settings, "train.epochs=1")
    before = {name: tensor.clone() for name, tensor in session.model().state_dict().items()}
    while not session.done:
        result = session.step()
    adapters = sum(t.numel() for n, t in before.items() if "layers.0" in n and "lora_" in n)
    assert result.raw_bytes["up/sync"] == 3 * 4 * adapters
    after = session.model().state_dict()
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert changed
    assert all("lora_" in name for name in changed)
    tensors, state = session.state()
    weights = [name for name in tensors if ".model." in name]
    assert weights
    assert all("lora_" in name for name in weights)
    again = start(*settings, "train.epochs=1")
    again.restore(tensors, state)
    assert all(torch.equal(t, after[n]) for n, t in again.model().state_dict().items())
