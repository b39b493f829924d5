"""The embedded data set."""

from __future__ import annotations

import sys

import pytest
import torch

from cutlayer.data import load, load_both, statistics
from cutlayer.data.known_datasets import measure
from cutlayer.errors import DataError


def test_digits_is_fixed_and_stratified() -> None:
    train, test = load_both("digits")
    assert (len(train), len(test)) == (1438, 359)
    assert train.images.dtype == torch.uint8
    assert train.shape == (1, 8, 8)
    assert train.classes == 10
    assert int(train.images.max()) == 240
    assert min(torch.bincount(test.labels).tolist()) >= 33
    # Everyone's digits are the same, whatever seed splits other data.
    assert torch.equal(load("digits", split_seed=5, test_fraction=0.5).images, train.images)


def test_published_statistics_are_those_of_the_data() -> None:
    train = load("digits")
    known, measured = statistics(train), measure(train)
    assert known.mean == pytest.approx(measured.mean, abs=1e-4)
    assert known.std == pytest.approx(measured.std, abs=1e-4)


def test_size_and_limit_apply_to_data_in_one_piece() -> None:
    train = load("digits", size=32, limit=50)
    assert tuple(train.images.shape) == (50, 1, 32, 32)
    assert torch.bincount(train.labels).tolist() == pytest.approx([5] * 10, abs=1)


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(DataError, match=r"scikit-learn.*pip install 'cutlayer\[train\]'"):
        load("digits")
