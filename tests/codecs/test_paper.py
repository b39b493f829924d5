"""What the paper states about its own method, to the last digit."""

import pytest
import torch

import cutlayer
from cutlayer.codecs.base import kept

# Sixteen values of which the top four and the segments [0, 0.7), [0.7, 1.4), [1.4, 2.1) are as in Figure 1.
VALUES = torch.tensor([0.3, 2.1, 0.8, 1.5, 3.0, 0.1, 0.69, 1.2, 2.4, 0.7, 1.9, 0.0, 1.3, 2.9, 0.5, 1.4])


def test_the_example_takes_twenty_bytes_instead_of_sixty_four() -> None:
    codec = cutlayer.codec("ms:ratio=0.75,bits=2")
    info = cutlayer.inspect(codec.encode(VALUES))
    assert info.payload_bytes == 20
    assert VALUES.numel() * 4 == 64
    assert codec.bits_per_element(VALUES.shape) == 10


def test_the_example_decodes_to_the_segments() -> None:
    decoded = cutlayer.decode(cutlayer.codec("ms:ratio=0.75,bits=2").encode(VALUES))
    step = 2.1 / 3
    expected = [0, 2.1, step, 2 * step, 3.0, 0, 0, step, 2.4, step, 2 * step, 0, step, 2.9, 0, 2 * step]
    torch.testing.assert_close(decoded, torch.tensor(expected))


def test_nearest_rounding_is_what_the_authors_published() -> None:
    decoded = cutlayer.decode(cutlayer.codec("ms:ratio=0.75,bits=2,rounding=nearest").encode(VALUES))
    levels = (decoded / (2.1 / 3)).round()[VALUES < 2.1]
    expected = torch.round(VALUES * 3 / 2.1).clamp(max=2)[VALUES < 2.1]
    assert torch.equal(levels, expected)


@pytest.mark.parametrize(
    ("spec", "rate"),
    [("ms:ratio=0.99,bits=2", 0.9275), ("sp:ratio=0.95875", 0.9275), ("qu:bits=3", 0.90625)],
)
def test_compression_rates(spec: str, rate: float) -> None:
    shape = (100, 64, 8, 8)  # a multiple of all the ratios' denominators
    codec = cutlayer.codec(spec)
    assert 1 - codec.bits_per_element(shape) / 32 == rate
    frame = codec.encode(torch.rand(shape))
    assert cutlayer.inspect(frame).payload_bytes == round((1 - rate) * 4 * 100 * 64 * 8 * 8)


@pytest.mark.parametrize(
    ("ratio", "d", "k"),
    [(0.9, 100, 10), (0.99, 100, 1), (0.7, 10, 3), (0.95875, 1600, 66), (0.0, 7, 7), (0.999, 5, 1)],
)
def test_k_is_exact(ratio: float, d: int, k: int) -> None:
    assert kept(ratio, d) == k


def test_keys_take_over_above_the_papers_sparsity() -> None:
    d = 3200
    for ratio, store in [(0.96, "mask"), (0.96875, "mask"), (0.97, "keys"), (0.999, "keys")]:
        frame = cutlayer.codec(f"sp:ratio={ratio}").encode(torch.rand(d))
        assert f"store={store}" in cutlayer.inspect(frame).codec
