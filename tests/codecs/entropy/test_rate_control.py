"""Rate control: budgets are used, and bounds of the error are kept."""

from collections.abc import Callable

import pytest
import torch

import cutlayer
from cutlayer.codecs.kernels import dispatch as kernels

Smooth = Callable[..., torch.Tensor]


def wide(channels: int, samples: int, side: int) -> torch.Tensor:
    """Feature maps whose channels depend on each other, behind a ReLU."""
    generator = torch.Generator().manual_seed(channels)
    base = torch.randn(samples, channels // 8, side, side, generator=generator)
    mix = torch.randn(channels, channels // 8, generator=generator) / (channels // 8) ** 0.5
    noise = torch.randn(samples, channels, side, side, generator=generator)
    return torch.relu(torch.einsum("nchw,kc->nkhw", base, mix) + 0.5 * noise - 0.5)


# At these, the size that the trial rows promise is far from that of the whole section.
@pytest.mark.parametrize("bpe", [0.1, 0.2, 0.32, 0.5, 1.0])
@pytest.mark.parametrize(("channels", "samples", "side"), [(512, 64, 7), (128, 96, 6), (65, 400, 3)])
def test_a_budget_is_used(channels: int, samples: int, side: int, bpe: float) -> None:
    x = wide(channels, samples, side)
    used = 8 * len(cutlayer.codec(f"ems:bpe={bpe}").encode(x)) / x.numel() / bpe
    assert 0.97 <= used <= 1


@pytest.mark.skipif("native" not in kernels.available(), reason="no compiled kernels were built")
@pytest.mark.parametrize("bpe", [0.1, 0.32, 0.5])
def test_the_reference_makes_the_same_choices_on_wide_maps(bpe: float) -> None:
    x, codec = wide(96, 84, 6), cutlayer.codec(f"ems:bpe={bpe}")
    native = codec.encode(x)
    with kernels.using("reference"):
        assert codec.encode(x) == native


# The rounding errors of so few elements do not average out.
@pytest.mark.parametrize("implementation", kernels.available())
@pytest.mark.parametrize(
    ("shape", "error"),
    [((1, 4, 8, 8), 0.004), ((1, 1, 8, 18), 0.2), ((1, 1, 11, 11), 0.2), ((2, 1, 9, 13), 0.05)],
)
def test_a_bound_is_kept_by_few_elements(
    smooth: Smooth, shape: tuple[int, ...], error: float, implementation: str
) -> None:
    for x in (smooth(*shape, seed=sum(shape)), smooth(*shape, seed=sum(shape)).relu()):
        with kernels.using(implementation):
            y = cutlayer.decode(cutlayer.codec(f"ems:error={error}").encode(x))
        assert (x - y).double().square().sum() <= error * x.double().square().sum()
