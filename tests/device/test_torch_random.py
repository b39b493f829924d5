"""Random numbers, batches and updates without PyTorch are those of PyTorch."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cutlayer.data.augment import crop_flip as crop_flip_in_torch
from cutlayer.device.batches import crop_flip
from cutlayer.device.optimizers import AdamW, Sgd, make_optimizer
from cutlayer.device.torch_random import Generator
from cutlayer.errors import CheckpointError, ConfigError


@pytest.mark.parametrize("seed", [0, 7, (1 << 63) - 1, 0x1234567890ABCDEF])
def test_the_same_numbers(seed: int) -> None:
    for n in (1, 2, 17, 1000):
        rng, twin = Generator(seed), torch.Generator().manual_seed(seed)
        assert rng.permutation(n).tolist() == torch.randperm(n, generator=twin).tolist()
        assert rng.integers(9, n).tolist() == torch.randint(9, (n,), generator=twin).tolist()
        assert rng.fractions(n).tolist() == torch.rand(n, generator=twin).tolist()


def test_the_same_augmentation() -> None:
    images = torch.randint(256, (20, 3, 12, 10), dtype=torch.uint8)
    expected = crop_flip_in_torch(images, None, torch.Generator().manual_seed(5))
    assert np.array_equal(crop_flip(images.numpy(), Generator(5)), expected.numpy())


@pytest.mark.parametrize(
    ("own", "twin"),
    [
        (Sgd(0.0, 0.0, False), lambda p: torch.optim.SGD(p, 0.1)),
        (Sgd(0.9, 5e-4, False), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=5e-4)),
        (Sgd(0.9, 0.1, True), lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.1, nesterov=True)),
        (AdamW(0.01), lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0.01)),
    ],
)
def test_the_same_updates(own, twin) -> None:
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=s).astype(np.float32) for s in ((3, 4), (5,), (2,))]
    parameters = [torch.nn.Parameter(torch.from_numpy(w.copy())) for w in weights]
    optimizer = twin(parameters)
    for lr in (0.1, 0.05, 0.02, 0.01):
        gradients = [rng.normal(size=w.shape).astype(np.float32) for w in weights[:2]]
        own.step(weights, [*gradients, None], lr)
        for parameter, gradient in zip(parameters, gradients, strict=False):
            parameter.grad = torch.from_numpy(gradient)
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()
    for weight, parameter in zip(weights, parameters, strict=True):
        np.testing.assert_allclose(weight, parameter.detach().numpy(), rtol=1e-5, atol=1e-7)
    expected = {
        f"{i}.{name}": torch.as_tensor(value)
        for i, p in enumerate(parameters)
        for name, value in optimizer.state.get(p, {}).items()
        if value is not None
    }
    assert own.state().keys() == expected.keys()
    for name, value in own.state().items():
        assert value.shape == tuple(expected[name].shape)
        np.testing.assert_allclose(value, expected[name].numpy(), rtol=1e-5, atol=1e-7)
    own.restore(own.state(), weights)
    with pytest.raises(CheckpointError, match="not known here"):
        own.restore({"0.other": np.zeros(3)}, weights)
    own.restore({}, weights)


def test_other_optimizers_are_named() -> None:
    with pytest.raises(ConfigError, match="'muon' needs PyTorch"):
        make_optimizer(SimpleNamespace(optimizer="muon"))
