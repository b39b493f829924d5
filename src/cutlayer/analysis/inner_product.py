"""The inner product of Theorem 2, <full gradient, gradient error>, estimated from batches without bias."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cutlayer.analysis.statistics import Interval, t_quantile
from cutlayer.errors import InputError


@dataclass(frozen=True)
class InnerProduct:
    """<full, E(g^ - g)> / ||full||^2, where the full gradient is known from batches only."""

    value: Interval
    """With a jackknife interval. NaN and infinite ends where noise hides the full gradient."""
    inflation: float
    """How many times ||full||^2 the squared norm of a mean of all other batches is: 1 without noise."""


def inner_product(true: Tensor, errors: Tensor, confidence: float = 0.95) -> InnerProduct:
    """Estimate the inner product from the gradients of n batches and their errors, a row for each batch.

    A gradient estimated from few batches is longer than the full one, by its noise:
    E||mean||^2 = ||full||^2 + variance / n. Products of different batches have no such term: the mean of
    <g_i, g_j> over i != j is an unbiased estimate of ||full||^2, and that of <g_i, error_j> one of the
    numerator. The interval leaves out one batch at a time (jackknife), so it covers the noise that all terms
    share.
    """
    if true.shape != errors.shape or true.dim() != 2 or len(true) < 3:
        raise InputError(
            f"gradients of shape {list(true.shape)} and errors of {list(errors.shape)}: expected a row for "
            "each of three or more batches, and the same shape"
        )
    g, e = true.detach().double(), errors.detach().double()
    n = len(g)
    norms, products = _Pairs(g @ g.T), _Pairs(g @ e.T)
    squared, without = norms.mean(), norms.mean_without()
    of_the_mean = float(((g.sum(0) - g) / (n - 1)).square().sum(1).mean())
    if squared <= 0 or float(without.min()) <= 0:
        return InnerProduct(Interval(math.nan, -math.inf, math.inf), math.inf)
    estimate = products.mean() / squared
    left_out = products.mean_without() / without
    error = math.sqrt((n - 1) / n * float((left_out - left_out.mean()).square().sum()))
    half = t_quantile(n - 1, confidence) * error
    return InnerProduct(Interval(estimate, estimate - half, estimate + half), of_the_mean / squared)


class _Pairs:
    """Means of a matrix of products over pairs of different batches."""

    def __init__(self, products: Tensor) -> None:
        self._off = products - torch.diag(products.diagonal())

    def mean(self) -> float:
        n = len(self._off)
        return float(self._off.sum()) / (n * (n - 1))

    def mean_without(self) -> Tensor:
        """The mean without one batch, for each of them."""
        n = len(self._off)
        rest = self._off.sum() - self._off.sum(0) - self._off.sum(1)
        return rest / ((n - 1) * (n - 2))
