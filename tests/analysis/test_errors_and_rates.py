import math

import pytest
import torch

from cutlayer import codec
from cutlayer.analysis import at_rate, compression_error, rate
from cutlayer.errors import InputError, ParameterError


def test_errors_by_hand() -> None:
    x = torch.tensor([[3.0, 4.0], [0.0, 12.0]])
    y = torch.tensor([[0.0, 4.0], [5.0, 12.0]])
    found = compression_error(x, y)
    assert found.norm == pytest.approx(math.sqrt(34))
    assert found.sample_norm == pytest.approx((3 + 5) / 2)
    assert found.relative == pytest.approx(34 / 169)


def test_errors_of_zeros() -> None:
    zero, one = torch.zeros(1, 4), torch.ones(1, 4)
    assert compression_error(zero, zero).relative == 0
    assert compression_error(zero, one).relative == math.inf


def test_the_papers_figure() -> None:
    """Fig. 1: top-4 of 16 values; filtered values become multiples of 0.7."""
    x = torch.tensor([[0.1, 2.1, 0.8, 1.5, 3.0, 0.2, 1.4, 0.6, 2.5, 0.3, 0.9, 1.1, 4.0, 0.5, 1.9, 0.0]])
    filtered = x[x < 2.1]
    floor = compression_error(x, codec("ms:ratio=0.75,bits=2"))
    assert floor.norm == pytest.approx(
        float((filtered - (filtered / 0.7 + 1e-6).floor() * 0.7).norm()), rel=1e-5
    )
    assert compression_error(x, codec("sp:ratio=0.75")).norm == pytest.approx(
        float(filtered.norm()), rel=1e-6
    )


def test_different_shapes_are_refused() -> None:
    with pytest.raises(InputError, match="cannot be compared"):
        compression_error(torch.zeros(2, 3), torch.zeros(3, 2))


@pytest.mark.parametrize("bits", [2, 2.32, 3, 3.32, 8])
@pytest.mark.parametrize("family", ["sp", "ms", "ms-nearest"])
def test_equal_rates(family: str, bits: float) -> None:
    assert rate(at_rate(family, bits), (100, 16, 32, 32)) == pytest.approx(bits, abs=1e-4)


def test_the_papers_policies_have_one_rate() -> None:
    assert at_rate("ms", 2.32) == codec("ms:ratio=0.99,bits=2")
    assert at_rate("sp", 2.32) == codec("sp:ratio=0.95875")
    assert at_rate("rt", 2.32) == codec("rt:ratio=0.95875")
    assert at_rate("qu", 3.32) == codec("qu:bits=3")


def test_below_two_bits_keys_are_smaller_than_a_mask() -> None:
    assert rate(at_rate("sp", 1.32), (100, 16, 32, 32)) == pytest.approx(1.32, abs=1e-4)
    assert at_rate("sp", 1.32) == codec("sp:ratio=0.979375")


def test_impossible_rates_are_refused() -> None:
    for bits in (0.5, 1, 17, math.nan):
        with pytest.raises(ParameterError, match="bits an element"):
            at_rate("ms", bits)
    with pytest.raises(ParameterError, match="no family"):
        at_rate("zip", 2)
