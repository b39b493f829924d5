"""The logarithm of the rivals' encoders: the same bits everywhere, and close to the true one."""

import math

import numpy as np
import pytest

from cutlayer.codecs.rivals.logarithm import log2

BITS = {  # as computed on x86-64; `make arm` compares whole frames as well
    3.0: "0x1.95c01a39fbd69p+0",
    0.1: "-0x1.a934f0979a371p+1",
    0.7: "-0x1.0776228967d12p-1",
    1e-300: "-0x1.f24a09f1a8b89p+9",
    123456.789: "0x1.0e9e4bf2a1cb2p+4",
}


@pytest.mark.parametrize("x", BITS)
def test_bits(x: float) -> None:
    assert float(log2(np.array([x]))[0]).hex() == BITS[x]


def test_powers_of_two_are_exact() -> None:
    exponents = np.arange(-1074, 1024)
    assert np.array_equal(log2(np.ldexp(1.0, exponents)), exponents)
    assert log2(np.array([0.0]))[0] == -np.inf


def test_error() -> None:
    x = np.exp(np.random.default_rng(1).normal(0, 5, 20_000))
    exact = np.array([math.log2(v) for v in x.tolist()])
    assert (abs(log2(x) - exact) <= 4 * np.spacing(abs(exact))).all()
