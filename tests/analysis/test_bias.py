"""Unbiasedness, with real statistics: the test finds bias where there is some, and only there."""

import pytest
import torch

import cutlayer
from cutlayer.analysis import Probe, bias_test
from cutlayer.errors import InputError
from cutlayer.models import build


def normal(count: int, mean: float, seed: int) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return list(mean + torch.randn(count, 400, generator=g, dtype=torch.float64))


def test_noise_alone_is_rarely_taken_for_bias() -> None:
    target = torch.ones(400, dtype=torch.float64)
    found = sum(bias_test(normal(16, 1.0, seed), target).biased for seed in range(300))
    # One side of 5 %: 7.5 of 300 with a standard deviation of 2.7.
    assert 1 <= found <= 18


def test_the_size_of_a_bias_is_found_within_the_noise() -> None:
    target = torch.ones(400, dtype=torch.float64)
    found = bias_test(normal(64, 1.3, 1), target)
    assert found.biased
    assert found.size == pytest.approx(0.3, abs=0.03)
    assert found.noise == pytest.approx(1.0, abs=0.02)
    assert bias_test(normal(64, 1.0, 2), target).size < 0.06


@pytest.mark.parametrize("spec", ["qu:bits=2,rounding=stochastic", "rk:ratio=0.9"])
def test_unbiased_codecs_are_and_their_gradients_are_not(spec: str) -> None:
    """Theorem 1 on a small net with random weights."""
    codec = cutlayer.codec(spec)
    model = build("tiny", classes=10, width=4, in_channels=1, image_size=8)
    g = torch.Generator().manual_seed(0)
    probe = Probe(
        cutlayer.cut(model, "layer1"),
        torch.rand(16, 1, 8, 8, generator=g),
        torch.randint(10, (16,), generator=g),
    )
    smashed = probe.smashed.detach()
    received = [cutlayer.decode(codec.encode(smashed, seed=seed)) for seed in range(64)]
    assert bias_test(received, smashed, confidence=0.999).biased is False
    compressed = [probe.gradient(codec, seed=seed).vector() for seed in range(64)]
    found = bias_test(compressed, probe.gradient().vector(), confidence=0.999)
    assert found.biased
    assert found.along.low > 0
    assert found.size > 0.05


def test_a_biased_codec_is_found_out() -> None:
    x = torch.rand(4, 100, generator=torch.Generator().manual_seed(0))
    codec = cutlayer.codec("rt:ratio=0.5")
    assert bias_test([cutlayer.decode(codec.encode(x, seed=s)) for s in range(16)], x).biased


def test_too_few_draws_are_refused() -> None:
    with pytest.raises(InputError, match="four draws"):
        bias_test([torch.zeros(3)] * 3, torch.zeros(3))
