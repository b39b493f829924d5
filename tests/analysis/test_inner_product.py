"""The inner product of Theorem 2 on gradients whose full gradient is known."""

import pytest
import torch

from cutlayer.analysis import inner_product
from cutlayer.errors import InputError

FULL = torch.ones(400, dtype=torch.float64) / 20  # of norm 1


def batches(count: int, noise: float, seed: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return FULL + noise * torch.randn(count, 400, generator=g, dtype=torch.float64)


def test_noise_of_the_batches_does_not_shrink_it() -> None:
    """Errors of -0.3 times the full gradient give -0.3; over an inflated norm it would be -0.18."""
    found = [inner_product(batches(24, 0.2, seed), (-0.3 * FULL).expand(24, 400)) for seed in range(40)]
    mean = sum(f.value.mean for f in found) / len(found)
    assert mean == pytest.approx(-0.3, abs=0.02)
    # ||mean of 23||^2 is 1 + 400 * 0.04 / 23 on average.
    inflation = sum(f.inflation for f in found) / len(found)
    assert inflation == pytest.approx(1 + 16 / 23, rel=0.05)


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    covered = 0
    for seed in range(400):
        g = torch.Generator().manual_seed(10_000 + seed)
        errors = -0.2 * FULL + 0.05 * torch.randn(16, 400, generator=g, dtype=torch.float64)
        covered += not inner_product(batches(16, 0.1, seed), errors).value.excludes(-0.2)
    # 380 expected with a standard deviation of 4.4.
    assert 365 < covered < 395


def test_without_noise_it_is_exact() -> None:
    found = inner_product(FULL.expand(4, 400), (0.5 * FULL).expand(4, 400))
    assert found.value.mean == pytest.approx(0.5)
    assert found.value.high - found.value.low == pytest.approx(0, abs=1e-9)
    assert found.inflation == pytest.approx(1)


def test_a_full_gradient_that_noise_hides_decides_nothing() -> None:
    found = inner_product(torch.tensor([[1.0], [-1.0], [1.0]]), torch.ones(3, 1))
    assert found.value.low == -float("inf")
    assert not found.value.excludes(1e9)


def test_two_batches_are_too_few() -> None:
    with pytest.raises(InputError, match="three or more batches"):
        inner_product(torch.ones(2, 3), torch.ones(2, 3))
