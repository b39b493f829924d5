"""Random choices have the right distribution, and come from the Philox generator of FORMAT.md."""

import itertools

import pytest
import torch

import cutlayer
from cutlayer.codecs.kernels import dispatch as kernels
from cutlayer.codecs.reference import philox
from cutlayer.codecs.reference.sparse import _top_draws

CPU = torch.device("cpu")


def test_philox_known_answers() -> None:
    # From the test vectors of Random123: all-zero input, and the all-ones counter and key.
    words = philox.words(0, 0, 0, 0, 64, CPU)
    assert [hex(w) for w in words[::16].tolist()] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


@pytest.mark.skipif("native" not in kernels.available(), reason="no compiled kernels were built")
@pytest.mark.parametrize("first", [0, 1, 63, 64, 100, (1 << 32) * 4 - 70])
def test_native_words_are_the_same(first: int) -> None:
    from cutlayer import _native
    from cutlayer.codecs import reference
    from cutlayer.codecs.kernels import native

    for seed, stream, section in itertools.product((0, 2**64 - 1, 12345), (0, 1), (0, 2**32 - 1)):
        assert (
            _native.random_words(seed, stream, section, first, 200)
            == philox.words(seed, stream, section, first, 200, CPU).tolist()
        )
        how = (seed, stream, section, first, 200)
        assert native.random_words(*how).tolist() == reference.random_words(*how).tolist()


@pytest.mark.parametrize(("m", "n"), [(0, 5), (5, 5), (1, 1), (0, 0), (3, 1000), (997, 1000)])
def test_a_random_subset_has_the_right_size(m: int, n: int) -> None:
    assert int(philox.draw(1, 2, 3, m, n).sum()) == m


def test_positions_beyond_31_bits_are_right() -> None:
    low, high = philox.words(7, 3, 0, 0, 2, CPU).tolist()
    n = 2**32 - 1
    assert (
        philox.scale_to(torch.tensor([low]), torch.tensor([high]), n).item() == ((high << 32 | low) * n) >> 64
    )


def test_stochastic_quantization_is_unbiased() -> None:
    codec = cutlayer.codec("qu:bits=2,rounding=stochastic")
    x = torch.cat([torch.tensor([0.0, 3.0]), torch.full((2000,), 1.2)])
    means = torch.stack([cutlayer.decode(codec.encode(x, seed=s))[2:] for s in range(50)])
    assert set(means.unique().tolist()) == {1.0, 2.0}
    assert abs(float(means.mean()) - 1.2) < 5 * 0.4 / (50 * 2000) ** 0.5


def test_random_k_is_unbiased() -> None:
    codec = cutlayer.codec("rk:ratio=0.75")
    x = torch.linspace(-1, 2, 40)
    mean = torch.stack([cutlayer.decode(codec.encode(x, seed=s)) for s in range(4000)]).mean(0)
    assert ((mean - x).abs() <= 5 * x.abs() * (3 / 4000) ** 0.5 + 1e-6).all()


def by_enumeration(d: int, k: int, alpha: float) -> list[float]:
    """P(element i is kept), from all ordered draws without replacement. The first k elements are the top."""
    weight = [(1 - alpha) / k] * k + [alpha / (d - k)] * (d - k)
    kept = [0.0] * d
    for draw in itertools.permutations(range(d), k):
        p, left = 1.0, sum(weight)
        for i in draw:
            p *= weight[i] / left
            left -= weight[i]
        for i in draw:
            kept[i] += p
    return kept


def test_weighted_draws_match_the_definition() -> None:
    d, k, alpha, n = 6, 3, 0.3, 8000
    x = torch.tensor([[6.0, 5.0, 4.0, 3.0, 2.0, 1.0]])
    codec = cutlayer.codec(f"rt:ratio=0.5,alpha={alpha}")
    seen = torch.stack([cutlayer.decode(codec.encode(x, seed=s))[0] != 0 for s in range(n)]).float().mean(0)
    expected = torch.tensor(by_enumeration(d, k, alpha))
    assert ((seen - expected).abs() < 5 * (expected * (1 - expected) / n).sqrt()).all()


def test_coin_draws_match_the_definition() -> None:
    d, k, alpha, n = 40, 10, 0.25, 3000
    x = torch.arange(d, 0, -1).float().view(1, d)
    codec = cutlayer.codec(f"rt:ratio=0.75,alpha={alpha},draw=coin")
    seen = torch.stack([cutlayer.decode(codec.encode(x, seed=s))[0] != 0 for s in range(n)]).float().mean(0)
    top, other = 1 - alpha, alpha * k / (d - k)
    assert ((seen[:k] - top).abs() < 5 * (top * (1 - top) / n) ** 0.5).all()
    assert ((seen[k:] - other).abs() < 5 * (other * (1 - other) / n) ** 0.5).all()


def test_draws_at_the_ends() -> None:
    assert _top_draws(10, 4, 0.0, False, 1, 0) == 4
    assert _top_draws(4, 4, 0.9, False, 1, 0) == 4
    assert _top_draws(5, 4, 0.999999, True, 1, 0) >= 3


def test_samples_draw_independently() -> None:
    x = torch.rand(1, 200).repeat(5, 1)
    y = cutlayer.decode(cutlayer.codec("rt:ratio=0.9,alpha=0.5").encode(x))
    assert len({tuple((row != 0).tolist()) for row in y}) == 5


@pytest.mark.parametrize("spec", ["rt:ratio=0.9", "rk:ratio=0.9", "qu:bits=3,rounding=stochastic"])
def test_the_deterministic_form_ignores_the_seed(spec: str) -> None:
    calm = cutlayer.codec(spec).deterministic()
    x = torch.randn(3, 500)
    assert calm.encode(x, seed=1) == calm.encode(x, seed=2)
    assert calm.payload_bytes((3, 500)) == cutlayer.codec(spec).payload_bytes((3, 500))
